//! Registers: core's tables and the complete database against the reference and the headers, and
//! the operations on register values.

use amdev_core::chip;
use amdev_core::reg::smu::{self, Clock, Mailbox, Message, Metric, SmuError, Span, Table};
use amdev_core::reg::tables::{self, UnsupportedVersion};
use amdev_core::reg::{Block, Field, Hub, MAX_BASES, Reg, RegDef, RegError, RegFile, f, r, ra};
use amdev_regs::{Db, core_name};
use amdev_tests::{golden, golden_regs};
use proptest::prelude::*;

const DEVICES: [&str; 5] = ["navi31", "navi32", "navi33", "navi44", "navi48"];

fn device(name: &str) -> Vec<u8> {
    golden(&format!("{name}/device.json")).unwrap()
}

fn registers(name: &str) -> RegFile {
    golden_regs::reg_file(&device(name)).unwrap()
}

/// Every register and field that the reference touched, on every device.
#[test]
fn registers_and_fields_equal_those_the_reference_used() {
    let mut registers = 0;
    for name in DEVICES {
        let used = golden(&format!("{name}/regs_used.json")).unwrap();
        let report = golden_regs::compare(&used, &device(name)).unwrap();
        assert_eq!(report.differences, [] as [String; 0], "{name}");
        assert_eq!(report.core, report.total, "{name}: core's tables");
        assert_eq!(report.database, report.total, "{name}: the database");
        registers += report.total.registers;
    }
    assert_eq!(registers, 297 + 297 + 296 + 303 + 303);
}

/// The comparison itself must notice a difference.
#[test]
fn a_wrong_offset_field_or_name_is_reported() {
    let used = String::from_utf8(golden("navi31/regs_used.json").unwrap()).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&used).unwrap();
    json["regCP_STAT"]["offset"] = 0xf41.into();
    json["regIH_RB_WPTR"]["fields"]["rb_overflow"] = serde_json::json!([1, 1]);
    json["regNO_SUCH"] = json["regCP_STAT"].clone();
    let report = golden_regs::compare(json.to_string().as_bytes(), &device("navi31")).unwrap();
    for name in ["CP_STAT:", "IH_RB_WPTR.rb_overflow:", "NO_SUCH:"] {
        assert!(report.differences.iter().any(|d| d.starts_with(name)), "{name} {:#?}", report.differences);
    }
    assert_eq!(report.core.registers, report.total.registers - 2);
    assert_eq!(report.database.registers, report.total.registers - 2);
}

/// Case C07 of the test plan: clearing RB_OVERFLOW leaves the pointer alone.
#[test]
fn clearing_ih_rb_overflow_leaves_the_write_pointer() {
    for name in DEVICES {
        let regs = registers(name);
        let value = regs.merge(r::IH_RB_WPTR, 0xABC0_0041, &[(f::ih_rb_wptr::RB_OVERFLOW, 0)]);
        assert_eq!(value, Ok(0xABC0_0040), "{name}");
    }
}

/// Case C07: 0x40 does not fit the six bits of QUEUE_SIZE.
#[test]
fn a_value_too_wide_for_its_field_is_refused() {
    for name in DEVICES {
        let regs = registers(name);
        let field = f::cp_hqd_pq_control::QUEUE_SIZE;
        let e = regs.encode(r::CP_HQD_PQ_CONTROL, &[(field, 0x40)]).unwrap_err();
        assert_eq!(e, RegError::TooWide { field, value: 0x40, width: 6 });
        assert_eq!(e.to_string(), "0x40 does not fit into CP_HQD_PQ_CONTROL.QUEUE_SIZE (6 bits)");
        assert_eq!(regs.encode(r::CP_HQD_PQ_CONTROL, &[(field, 0x3f)]), Ok(0x3f));
    }
}

#[test]
fn a_field_of_another_register_is_refused() {
    let regs = registers("navi31");
    let field = f::cp_hqd_vmid::VMID;
    assert_eq!(
        regs.encode(r::CP_HQD_ACTIVE, &[(field, 1)]),
        Err(RegError::ForeignField { reg: r::CP_HQD_ACTIVE, field })
    );
    assert_eq!(regs.encode(r::CP_HQD_VMID, &[(field, 1)]), Ok(1));
}

#[test]
fn a_field_or_register_that_a_version_lacks_is_refused() {
    // F32_CNTL became MCU_CNTL with SDMA 7.
    for (name, has, lacks) in
        [("navi31", ra::SDMA_F32_CNTL, ra::SDMA_MCU_CNTL), ("navi48", ra::SDMA_MCU_CNTL, ra::SDMA_F32_CNTL)]
    {
        let regs = registers(name);
        for (has, lacks) in has.into_iter().zip(lacks) {
            assert!(regs.addr(has).is_ok());
            assert!(matches!(regs.addr(lacks), Err(RegError::NoSuchRegister { .. })));
        }
    }
    let (f32_halt, mcu_halt) = (f::sdma_f32_cntl::HALT, f::sdma_mcu_cntl::HALT);
    assert!(registers("navi31").has_field(f32_halt) && !registers("navi31").has_field(mcu_halt));
    assert_eq!(
        registers("navi48").encode(r::SDMA0_F32_CNTL, &[(f32_halt, 1)]),
        Err(RegError::NoSuchField { field: f32_halt })
    );
}

#[test]
fn a_family_shares_its_fields_and_no_other_register_does() {
    let regs = registers("navi31");
    let field = f::sdma_queue_rb_cntl::RB_ENABLE;
    for reg in ra::SDMA_QUEUE_RB_CNTL.as_flattened() {
        assert_eq!(regs.encode(*reg, &[(field, 1)]), Ok(1), "{reg}");
    }
    assert!(regs.encode(r::SDMA0_QUEUE0_RB_BASE, &[(field, 1)]).is_err());
}

#[test]
fn hub_pairs_name_the_registers_of_their_hub() {
    assert_eq!(r::hub::VM_L2_CNTL[Hub::Gc], r::GCVM_L2_CNTL);
    assert_eq!(r::hub::VM_L2_CNTL[Hub::Mm], r::MMVM_L2_CNTL);
    assert_eq!(ra::hub::VM_INVALIDATE_ENG_REQ[Hub::Mm][17], r::MMVM_INVALIDATE_ENG17_REQ);
    for name in DEVICES {
        let regs = registers(name);
        for hub in Hub::ALL {
            let reg = r::hub::VM_L2_CNTL[hub];
            assert_eq!(regs.encode(reg, &[(f::hub::vm_l2_cntl::ENABLE_L2_CACHE[hub], 1)]), Ok(1));
        }
        let mixed = (f::hub::vm_l2_cntl::ENABLE_L2_CACHE[Hub::Mm], 1);
        assert!(regs.encode(r::hub::VM_L2_CNTL[Hub::Gc], &[mixed]).is_err());
    }
}

/// All 18 engines and 16 contexts exist on both hubs of every device.
#[test]
fn every_device_has_all_invalidation_engines_and_contexts() {
    for name in DEVICES {
        let regs = registers(name);
        for hub in Hub::ALL {
            let engines = [
                ra::hub::VM_INVALIDATE_ENG_SEM[hub],
                ra::hub::VM_INVALIDATE_ENG_REQ[hub],
                ra::hub::VM_INVALIDATE_ENG_ACK[hub],
                ra::hub::VM_INVALIDATE_ENG_ADDR_RANGE_LO32[hub],
                ra::hub::VM_INVALIDATE_ENG_ADDR_RANGE_HI32[hub],
            ];
            let contexts = [
                ra::hub::VM_CONTEXT_CNTL[hub],
                ra::hub::VM_CONTEXT_PAGE_TABLE_BASE_ADDR_LO32[hub],
                ra::hub::VM_CONTEXT_PAGE_TABLE_END_ADDR_HI32[hub],
            ];
            for reg in engines.as_flattened().iter().chain(contexts.as_flattened()) {
                assert!(regs.has(*reg), "{name}: {reg}");
            }
        }
    }
}

#[test]
fn versions_choose_the_table_that_linux_and_the_reference_choose() {
    let cases = [
        (Block::Gc, (9, 5, 0), (9, 4, 3)),
        (Block::Gc, (11, 0, 1), (11, 0, 0)),
        (Block::Gc, (11, 0, 2), (11, 0, 0)),
        (Block::Gc, (11, 0, 3), (11, 0, 3)),
        (Block::Gc, (11, 5, 1), (11, 5, 0)),
        (Block::Gc, (12, 0, 1), (12, 0, 0)),
        (Block::Gc, (10, 3, 6), (10, 3, 0)),
        (Block::Mp0, (13, 0, 7), (13, 0, 0)),
        (Block::Mp0, (13, 0, 10), (13, 0, 0)),
        (Block::Mp0, (14, 0, 3), (14, 0, 2)),
        (Block::Mp1, (14, 0, 3), (11, 0, 0)),
        (Block::Nbio, (3, 3, 0), (2, 3, 0)),
        (Block::Nbio, (3, 3, 1), (2, 3, 0)),
        (Block::Nbio, (4, 3, 1), (4, 3, 0)),
        (Block::Nbio, (6, 3, 1), (6, 3, 1)),
        (Block::Nbio, (7, 11, 0), (7, 11, 0)),
        (Block::Mmhub, (3, 0, 2), (3, 0, 2)),
        (Block::Mmhub, (3, 0, 3), (3, 0, 0)),
        (Block::Hdp, (5, 2, 0), (5, 2, 1)),
        (Block::Osssys, (4, 4, 5), (4, 4, 2)),
    ];
    for (block, asked, served) in cases {
        assert_eq!(tables::for_version(block, asked).unwrap().version, served, "{block} {asked:?}");
    }
}

#[test]
fn an_unsupported_version_is_an_error_naming_block_and_version() {
    let e = tables::for_version(Block::Gc, (10, 1, 10)).unwrap_err();
    assert_eq!(e, UnsupportedVersion { block: Block::Gc, version: (10, 1, 10) });
    assert!(e.to_string().starts_with("no register table for GC 10.1.10;"), "{e}");
    assert!(e.to_string().contains("11.0.3, 11.5.0"), "{e}");
    assert!(Db::for_version("gc", (10, 1, 10)).is_none());
    assert!(Db::for_version("no_block", (11, 0, 0)).is_none());
}

/// Core's tables say nothing that the complete database does not say: every register stands at an
/// address where the headers have that name (or one of its role), and has that register's fields.
#[test]
fn core_tables_agree_with_the_database() {
    let mut checked = 0;
    for table in tables::all() {
        let block = table.block.to_string().to_lowercase();
        let db = Db::for_version(&block, table.version).unwrap();
        let mut file = RegFile::new();
        file.set(table, Default::default());
        for (i, def) in table.regs.iter().enumerate().filter(|(_, d)| d.segment != RegDef::ABSENT) {
            let reg = Reg(table.first_reg + i as u16);
            assert_eq!(reg.block(), table.block, "{reg}");
            assert!(usize::from(def.segment) < MAX_BASES, "{reg}: segment {}", def.segment);
            let named = |name: &str| core_name(&block, table.version, name);
            let Some(theirs) = db.at(def.segment, def.offset).find(|r| {
                // Before gfx10 the hubs' registers have no prefix.
                named(r.name).name == reg.name()
                    || ["GC", "MM"].iter().any(|hub| named(&format!("{hub}{}", r.name)).name == reg.name())
            }) else {
                panic!("{reg}: not at ({}, {:#x}) in {}", def.segment, def.offset, db.header());
            };
            let strip = named(theirs.name).strip.unwrap_or_default();
            for field in reg.fields() {
                let Ok(def) = file.field_def(field) else { continue };
                let theirs = theirs.field(&format!("{strip}{}", field.name()));
                assert_eq!(theirs.map(|f| (f.lsb, f.width)), Some((def.lsb, def.width)), "{field}");
            }
            checked += 1;
        }
    }
    assert!(checked > 9_000, "{checked} registers in all tables");
}

#[test]
fn the_hand_written_register_exists_where_it_is_needed() {
    let reg = r::COMPUTE_CURRENT_LOGIC_XCC_ID;
    for version in [(9, 4, 3), (9, 5, 0)] {
        let table = tables::for_version(Block::Gc, version).unwrap();
        let mut regs = RegFile::new();
        regs.set(table, Default::default());
        assert_eq!(regs.place(reg), Ok(RegDef { segment: 0, offset: 0xe25 }));
        assert_eq!(
            Db::for_version("gc", version).unwrap().get("regCOMPUTE_CURRENT_LOGIC_XCC_ID").unwrap().offset,
            0xe25
        );
    }
}

#[test]
fn ids_are_dense_and_every_field_belongs_to_a_register() {
    let regs: Vec<Reg> = Reg::all().collect();
    assert_eq!(regs.len(), usize::from(Reg::COUNT));
    let fields: usize = regs.iter().filter(|r| r.field_owner() == **r).map(|r| r.fields().count()).sum();
    assert_eq!(fields, usize::from(Field::COUNT));
    for reg in regs {
        assert_eq!(Reg::from_name(reg.name()), Some(reg));
        assert!(reg.fields().all(|f| f.reg() == reg.field_owner()));
    }
}

#[test]
fn the_database_holds_every_register_by_name_and_by_address() {
    let mut count = 0;
    for header in Db::headers() {
        let db = Db::of_header(header).unwrap();
        assert_eq!(db.iter().count(), db.len());
        for reg in db.iter() {
            assert_eq!(db.get(reg.name), Some(reg), "{header}");
            assert!(db.at(reg.segment, reg.offset).any(|r| r == reg), "{header} {}", reg.name);
            for field in reg.fields() {
                assert!(
                    field.width >= 1 && field.lsb + field.width <= 32,
                    "{header} {}.{}",
                    reg.name,
                    field.name
                );
            }
            count += 1;
        }
    }
    assert!(count > 70_000, "{count}");
    let db = Db::for_version("gc", (11, 0, 2)).unwrap();
    assert_eq!((db.header(), db.prefix()), ("gc_11_0_0", "reg"));
    assert!(db.get("regCP_STAT").is_some() && db.get("CP_STAT").is_some() && db.get("CP_STA").is_none());
    assert_eq!(Db::for_version("nbif", (6, 3, 1)).unwrap().header(), "nbif_6_3_1");
    assert_eq!(Db::for_version("gc", (10, 3, 0)).unwrap().prefix(), "mm");
}

/// MP1's version and what the reference sent to the SMU of each device.
fn smu_of(device: &str) -> (&'static smu::Messages, Vec<serde_json::Value>) {
    let json: serde_json::Value = serde_json::from_slice(&self::device(device)).unwrap();
    let mp1 = json["ips"].as_array().unwrap().iter().find(|ip| ip["name"] == "MP1_HWID").unwrap();
    let part = |i: usize| mp1["version"][i].as_u64().unwrap() as u8;
    let messages = smu::for_version((part(0), part(1), part(2))).unwrap();
    (messages, serde_json::from_slice(&golden(&format!("{device}/smu.json")).unwrap()).unwrap())
}

#[test]
fn smu_messages_have_the_numbers_the_reference_sent() {
    let by_name = [
        ("PPSMC_MSG_SetDriverDramAddrHigh", Message::SetDriverDramAddrHigh),
        ("PPSMC_MSG_SetDriverDramAddrLow", Message::SetDriverDramAddrLow),
        ("PPSMC_MSG_EnableAllSmuFeatures", Message::EnableAllSmuFeatures),
        ("PPSMC_MSG_GetDpmFreqByIndex", Message::GetDpmFreqByIndex),
        ("PPSMC_MSG_SetSoftMinByFreq", Message::SetSoftMinByFreq),
        ("PPSMC_MSG_SetSoftMaxByFreq", Message::SetSoftMaxByFreq),
    ];
    for device in DEVICES {
        let (messages, sent) = smu_of(device);
        let mut clocks = Vec::new();
        for row in &sent {
            let name = row["name"].as_str().unwrap();
            let (_, message) = by_name.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(
                messages.message(*message).unwrap(),
                row["msg"].as_u64().unwrap() as u32,
                "{device} {name}"
            );
            if *message == Message::GetDpmFreqByIndex {
                let arg = row["arg"].as_str().unwrap().trim_start_matches("0x");
                clocks.push(u32::from_str_radix(arg, 16).unwrap() >> 16);
            }
        }
        clocks.dedup();
        let ours = [Clock::Gfx, Clock::Memory, Clock::Fabric, Clock::Soc].map(|c| messages.clock(c).unwrap());
        assert_eq!(clocks, ours, "{device}: clock ids in the order the reference asks for them");
    }
}

/// A GPU generation talks to its SMU by the interface of the version that its discovery table names.
#[test]
fn gpu_generations_use_the_smu_interface_of_their_discovery_table() {
    for device in DEVICES {
        let json: serde_json::Value = serde_json::from_slice(&self::device(device)).unwrap();
        let gc = json["ips"].as_array().unwrap().iter().find(|ip| ip["name"] == "GC_HWID").unwrap();
        let part = |i: usize| gc["version"][i].as_u64().unwrap() as u8;
        let chip = chip::find((part(0), part(1), part(2))).unwrap();
        let (smu, _) = smu_of(device);
        assert!(std::ptr::eq(chip.smu().unwrap(), smu), "{device}");
        assert_eq!(chip.mp1, smu.version, "{device}");
    }
    // The numbers that every GPU was driven with, by the headers of 13.0.0.
    let smu = smu::for_version((13, 0, 0)).unwrap();
    for (message, number) in [
        (Message::GetSmuVersion, 0x02),
        (Message::EnableAllSmuFeatures, 0x06),
        (Message::SetDriverDramAddrHigh, 0x0e),
        (Message::SetDriverDramAddrLow, 0x0f),
        (Message::TransferTableSmu2Dram, 0x12),
        (Message::SetSoftMinByFreq, 0x19),
        (Message::SetSoftMaxByFreq, 0x1a),
        (Message::GetDpmFreqByIndex, 0x1f),
    ] {
        assert_eq!(smu.message(message), Ok(number), "{message:?}");
    }
    assert_eq!(smu.mode1_reset(), (Mailbox::Driver, 0x2f));
    for (version, reset) in [((13, 0, 7), (Mailbox::Driver, 0x2f)), ((13, 0, 10), (Mailbox::Debug, 2))] {
        assert_eq!(smu::for_version(version).unwrap().mode1_reset(), reset);
    }
    for minor in [2, 3] {
        assert_eq!(smu::for_version((14, 0, minor)).unwrap().mode1_reset(), (Mailbox::Debug, 2));
    }
    for (version, layout, size) in [
        ((13, 0, 0), [0x38, 0x40, 0x68, 0x6a, 0x74, 0x78, 0x98, 0x50], 392),
        ((13, 0, 7), [0x38, 0x40, 0x68, 0x6a, 0x74, 0x78, 0x98, 0x50], 392),
        ((13, 0, 10), [0x38, 0x40, 0x68, 0x6a, 0x74, 0x78, 0x98, 0x50], 392),
        ((14, 0, 2), [0x30, 0x38, 0x7c, 0x7e, 0x88, 0x8c, 0xaa, 0x68], 412),
        ((14, 0, 3), [0x30, 0x38, 0x7c, 0x7e, 0x88, 0x8c, 0xaa, 0x68], 412),
    ] {
        let smu = smu::for_version(version).unwrap();
        let offsets = [
            Metric::AverageGfxclkFrequencyPostDs,
            Metric::AverageMemclkFrequencyPostDs,
            Metric::AverageGfxActivity,
            Metric::AverageUclkActivity,
            Metric::AverageSocketPower,
            Metric::AvgTemperature,
            Metric::AvgFanRpm,
            Metric::MetricsCounter,
        ]
        .map(|metric| smu.metric(metric).unwrap().offset);
        assert_eq!((offsets, smu.metrics_size, smu.table(Table::SmuMetrics)), (layout, size, Ok(5)));
    }
}

/// Sizes and offsets that a C compiler gives (the reference's ctypes layouts of 13.0.0 and 14.0.2).
#[test]
fn smu_metrics_lie_where_a_c_compiler_puts_them() {
    let at = |offset, size, count| Span { offset, size, count };
    let v13 = smu::for_version((13, 0, 0)).unwrap();
    let v14 = smu::for_version((14, 0, 3)).unwrap();
    assert_eq!((v13.metrics_size, v14.metrics_size), (392, 412));
    for (metric, in_13, in_14) in [
        (Metric::CurrClock, at(0, 4, 13), at(0, 4, 11)),
        (Metric::AverageGfxActivity, at(104, 2, 1), at(124, 2, 1)),
        (Metric::EnergyAccumulator, at(112, 4, 1), at(132, 4, 1)),
        (Metric::AverageSocketPower, at(116, 2, 1), at(136, 2, 1)),
        (Metric::AvgTemperature, at(120, 2, 13), at(140, 2, 12)),
        (Metric::AvgFanRpm, at(152, 2, 1), at(170, 2, 1)),
        (Metric::ThrottlingPercentage, at(154, 1, 22), at(172, 1, 21)),
        (Metric::PublicSerialNumberUpper, at(240, 4, 1), at(256, 4, 1)),
    ] {
        assert_eq!((v13.metric(metric), v14.metric(metric)), (Ok(in_13), Ok(in_14)), "{metric:?}");
    }
    // 13.0.7 has no VmaxThrottlingPercentage and its padding.
    let v7 = smu::for_version((13, 0, 7)).unwrap();
    assert_eq!(v7.metric(Metric::PublicSerialNumberUpper), Ok(at(236, 4, 1)));
}

#[test]
fn a_metric_is_read_little_endian_and_never_past_the_table() {
    let v14 = smu::for_version((14, 0, 2)).unwrap();
    let mut table = vec![0u8; usize::from(v14.metrics_size)];
    table[140 + 2..140 + 4].copy_from_slice(&[0x34, 0x12]);
    assert_eq!(v14.read_metric(&table, Metric::AvgTemperature, 1), Ok(0x1234));
    assert!(matches!(v14.read_metric(&table, Metric::AvgTemperature, 12), Err(SmuError::Missing { .. })));
    assert_eq!(
        v14.read_metric(&table[..143], Metric::AvgTemperature, 1),
        Err(SmuError::ShortTable { metric: Metric::AvgTemperature, len: 143, end: 144 })
    );
}

#[test]
fn smu_versions_differ_where_their_headers_do() {
    let v = |c| smu::for_version((13, 0, c)).unwrap();
    let v14 = smu::for_version((14, 0, 3)).unwrap();
    assert_eq!(v(0).mode1_reset(), (Mailbox::Driver, 0x2f));
    assert_eq!(v(7).mode1_reset(), (Mailbox::Driver, 0x2f));
    assert_eq!(v(10).mode1_reset(), (Mailbox::Debug, 2));
    assert_eq!(v14.mode1_reset(), (Mailbox::Debug, 2));
    assert!(matches!(v14.message(Message::Mode1Reset), Err(SmuError::NoMessage { .. })));
    assert_eq!((v(0).message(Message::AllowGfxDcs), v14.message(Message::AllowGfxDcs)), (Ok(0x42), Ok(0x43)));
    assert_eq!((v(0).clock(Clock::DisplayFabric), v14.clock(Clock::DisplayFabric)), (Ok(11), Ok(9)));
    assert!(v14.clock(Clock::Video1).is_err());
    assert_eq!((v(0).driver_if_version, v(7).driver_if_version, v14.driver_if_version), (0x3d, 0x35, 0x2e));
    assert!(smu::all().all(|m| m.table(Table::SmuMetrics) == Ok(5)));
    assert_eq!(smu::for_version((11, 0, 7)).unwrap_err(), SmuError::Unsupported { version: (11, 0, 7) });
}

fn any_register_with_fields() -> impl Strategy<Value = (usize, Reg)> {
    (0..DEVICES.len(), 0..Reg::COUNT).prop_map(|(d, r)| (d, Reg(r)))
}

proptest! {
    /// What is merged into a field is what is read from it, and no other bit changes.
    #[test]
    fn merge_and_get_round_trip((d, reg) in any_register_with_fields(), old: u32, pick: prop::sample::Index, new: u32) {
        let regs = registers_cached(d);
        let fields: Vec<Field> = reg.fields().filter(|f| regs.has_field(*f)).collect();
        prop_assume!(regs.has(reg) && !fields.is_empty());
        let field = fields[pick.index(fields.len())];
        let def = regs.field_def(field).unwrap();
        let mask = regs.mask(field).unwrap();
        prop_assert_eq!(mask.count_ones(), u32::from(def.width));
        let fits = def.width == 32 || new >> def.width == 0;
        match regs.merge(reg, old, &[(field, new)]) {
            Ok(value) => {
                prop_assert!(fits);
                prop_assert_eq!(regs.get(value, field).unwrap(), new);
                prop_assert_eq!(value & !mask, old & !mask);
            }
            Err(e) => {
                prop_assert!(!fits);
                prop_assert_eq!(e, RegError::TooWide { field, value: new, width: def.width });
            }
        }
        let small = new & (mask >> def.lsb);
        let value = regs.merge(reg, old, &[(field, small)]).unwrap();
        prop_assert_eq!(regs.get(value, field).unwrap(), small);
    }
}

fn registers_cached(device: usize) -> &'static RegFile {
    static FILES: [std::sync::OnceLock<RegFile>; DEVICES.len()] =
        [const { std::sync::OnceLock::new() }; DEVICES.len()];
    FILES[device].get_or_init(|| registers(DEVICES[device]))
}
