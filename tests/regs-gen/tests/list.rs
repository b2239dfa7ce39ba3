//! The syntax of `registers.txt` and `versions.txt`, against small headers.

use amdev_regs::core_name;
use amdev_regs::headers::{Header, parse as parse_header};
use amdev_regs::list::{Model, Table, build};
use amdev_regs::versions::{TableSpec, parse as parse_versions, versions};

/// Name, offset and fields (name and mask) of a register.
type TestReg<'a> = (&'a str, u32, &'a [(&'a str, u32)]);

/// A header pair with the registers and fields given.
fn header(regs: &[TestReg<'_>]) -> Header {
    let (mut offsets, mut masks) = (String::new(), String::new());
    for (name, offset, fields) in regs {
        offsets += &format!("#define reg{name} {offset:#x}\n#define reg{name}_BASE_IDX 1\n");
        for (field, mask) in *fields {
            masks += &format!("#define {name}__{field}_MASK {mask:#010X}L\n");
        }
    }
    parse_header(&offsets, &masks)
}

fn spec(block: &'static str, version: (u8, u8, u8)) -> TableSpec {
    TableSpec { block, version, header: "x/x" }
}

fn try_build(list: &str, tables: &[(TableSpec, Header)]) -> Result<Model, String> {
    let tables: Vec<Table<'_>> = tables.iter().map(|(spec, header)| Table { spec, header }).collect();
    build(list, &tables)
}

fn names(model: &Model) -> Vec<&str> {
    model.entries.iter().map(|e| e.name.as_str()).collect()
}

fn two_versions() -> Vec<(TableSpec, Header)> {
    let old = header(&[
        ("Q2_CNTL", 2, &[("EN", 1)]),
        ("Q10_CNTL", 10, &[("EN", 1)]),
        ("Q0_BASE", 20, &[]),
        ("OLD_STATUS", 30, &[("BUSY", 2), ("GONE", 0xf0)]),
    ]);
    let new = header(&[
        ("Q2_CNTL", 102, &[("EN", 0x10)]),
        ("Q10_CNTL", 110, &[("EN", 0x10)]),
        ("NEW_STATUS", 130, &[("BUSY", 4)]),
    ]);
    vec![(spec("gc", (11, 0, 0)), old), (spec("gc", (12, 0, 0)), new)]
}

#[test]
fn a_pattern_takes_every_match_of_any_version_in_order_of_numbers() {
    let model = try_build("[gc]\nQ*_* *\n!*_BASE\n", &two_versions()).unwrap();
    assert_eq!(names(&model), ["Q2_CNTL", "Q10_CNTL"]);
    assert_eq!(model.places[0], [Some((1, 2)), Some((1, 102))]);
}

#[test]
fn a_role_takes_the_first_name_that_a_version_has() {
    let model = try_build("[gc]\nSTATUS = NEW_STATUS | OLD_STATUS *\n", &two_versions()).unwrap();
    assert_eq!(model.places[0], [Some((1, 30)), Some((1, 130))]);
    let busy = model.fields.iter().find(|f| f.name == "BUSY").unwrap();
    assert_eq!(busy.places, [Some((1, 1)), Some((2, 1))]);
    let gone = model.fields.iter().find(|f| f.name == "GONE").unwrap();
    assert_eq!(gone.places, [Some((4, 4)), None]);
}

#[test]
fn a_name_limited_to_a_version_counts_there_only() {
    let list = "[gc]\nSTATUS = @12:NEW_STATUS | @11.1:OLD_STATUS *\n";
    let model = try_build(list, &two_versions()).unwrap();
    assert_eq!(model.places[0], [None, Some((1, 130))]);
}

#[test]
fn a_family_becomes_an_array_with_one_set_of_fields() {
    let bits: &[(&str, u32)] = &[("EN", 1)];
    let regs = [("E0_Q0_X", 0, bits), ("E0_Q1_X", 1, bits), ("E1_Q0_X", 2, bits), ("E1_Q1_X", 3, bits)];
    let model = try_build("[gc]\nE{0..1}_Q{0..1}_X *\n", &[(spec("gc", (1, 0, 0)), header(&regs))]).unwrap();
    assert_eq!(names(&model), ["E0_Q0_X", "E0_Q1_X", "E1_Q0_X", "E1_Q1_X"]);
    assert_eq!(model.families[0].name, "E_Q_X");
    assert_eq!(model.families[0].dims, Some(vec![2, 2]));
    assert_eq!(model.fields.len(), 1);
    assert!(model.entries.iter().all(|e| e.owner == 0));
}

#[test]
fn a_family_whose_members_differ_is_refused_unless_each_has_its_own_fields() {
    let regs: [TestReg<'_>; 2] = [("X0", 0, &[("EN", 1)]), ("X1", 1, &[("EN", 2)])];
    let tables = [(spec("gc", (1, 0, 0)), header(&regs))];
    let e = try_build("[gc]\nX{0..1} *\n", &tables).unwrap_err();
    assert!(e.starts_with("X1 differs from its family"), "{e}");
    assert_eq!(try_build("[gc]\nX{0..1} * each\n", &tables).unwrap().fields.len(), 2);
}

#[test]
fn stripped_field_names_are_the_same_for_all_members() {
    let regs: [TestReg<'_>; 2] = [("E0", 0, &[("PORT0_EN", 1)]), ("E1", 1, &[("PORT1_EN", 1)])];
    let tables = [(spec("gc", (1, 0, 0)), header(&regs))];
    let model = try_build("[gc]\nE{0..1} = E{0} * strip=PORT{0}_\n", &tables).unwrap();
    assert_eq!(model.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["EN"]);
}

#[test]
fn hub_registers_exist_once_in_each_hub_and_as_a_pair() {
    let tables = [
        (spec("gc", (11, 0, 0)), header(&[("GCVM_X", 1, &[("A", 1)])])),
        (spec("gc", (9, 4, 3)), header(&[("VM_X", 5, &[("A", 1)])])),
        (spec("mmhub", (3, 0, 0)), header(&[("MMVM_X", 2, &[("A", 2)])])),
    ];
    let model = try_build("[hub]\nVM_X *\n", &tables).unwrap();
    assert_eq!(names(&model), ["GCVM_X", "MMVM_X"]);
    assert_eq!(model.places[0], [Some((1, 1)), Some((1, 5)), None]);
    assert_eq!(model.places[1], [None, None, Some((1, 2))]);
    assert_eq!((model.pairs[0].gc[0], model.pairs[0].mm[0]), (0, 1));
}

#[test]
fn mistakes_in_the_list_name_the_line_or_the_register() {
    for (list, message) in [
        ("[gc]\nNO_SUCH *\n", "NO_SUCH (gc) exists in no version"),
        ("[gc]\nNOTHING_* *\n", "registers.txt:2: nothing matches NOTHING_*"),
        ("[gc]\nQ2_CNTL NO_FIELD\n", "Q2_CNTL.NO_FIELD exists in no version"),
        ("[gc]\nQ2_CNTL *\nQ2_CNTL *\n", "registers.txt:3: Q2_CNTL is listed twice"),
        ("[gc]\nQ2_CNTL\n", "registers.txt:2: no fields given (`*`, `-` or names)"),
        ("[gx]\n", "registers.txt:1: unknown section gx"),
        ("[gc]\nQ{0-2}_CNTL *\n", "registers.txt:2: a range is written {0..7}"),
    ] {
        assert_eq!(try_build(list, &two_versions()).unwrap_err(), message);
    }
}

#[test]
fn core_names_of_header_names() {
    for (block, version, name, core) in [
        ("mp0", (14, 0, 2), "MPASP_SMN_C2PMSG_35", "PSP_C2PMSG_35"),
        ("mp0", (13, 0, 0), "MP0_SMN_C2PMSG_35", "PSP_C2PMSG_35"),
        ("nbio", (6, 3, 1), "GDC_S2A0_S2A_DOORBELL_ENTRY_3_CTRL", "S2A_DOORBELL_ENTRY_3_CTRL"),
        ("nbio", (7, 11, 0), "BIF_BX_PF1_GPU_HDP_FLUSH_REQ", "GPU_HDP_FLUSH_REQ"),
        ("nbio", (4, 3, 0), "BIF_BX_PF1_GPU_HDP_FLUSH_REQ", "BIF_BX_PF1_GPU_HDP_FLUSH_REQ"),
        ("gc", (12, 0, 0), "GCVM_L2_PROTECTION_FAULT_STATUS_LO32", "GCVM_L2_PROTECTION_FAULT_STATUS"),
        ("gc", (12, 0, 0), "CP_STAT", "CP_STAT"),
    ] {
        assert_eq!(core_name(block, version, name).name, core, "{name}");
    }
}

#[test]
fn versions_are_looked_up_by_alias_then_themselves_then_their_family() {
    let text =
        "table gc 11.0.0 gc/a\ntable gc 11.0.3 gc/b\ntable gc 9.4.3 gc/c\nalias gc 9.5 -> 9.4.3 : why\n";
    let v = parse_versions(text).unwrap();
    let served = |version| v.select("gc", version).map(|t| t.header);
    assert_eq!(served((11, 0, 3)), Some("gc/b"));
    assert_eq!(served((11, 0, 2)), Some("gc/a"));
    assert_eq!(served((11, 5, 0)), Some("gc/a"));
    assert_eq!(served((9, 5, 7)), Some("gc/c"));
    assert_eq!(served((9, 6, 0)), None);
    assert_eq!(v.select("hdp", (11, 0, 0)).map(|t| t.header), None);
}

#[test]
fn mistakes_in_versions_name_the_line() {
    for (text, message) in [
        ("table gc 11.0 gc/a\n", "versions.txt:1: `11.0` is not a version of three numbers"),
        ("\ntables gc\n", "versions.txt:2: expected `table`, `alias` or `extra` with its arguments"),
        ("extra gc 1.0.0 X 0 zz : y\n", "versions.txt:1: `zz` is not a number"),
        ("alias gc 1 -> 2.0.0 : y\n", "versions.txt: alias of gc to (2, 0, 0), which has no table"),
    ] {
        assert_eq!(parse_versions(text).unwrap_err(), message);
    }
}

/// Every alias and every additional register says why.
#[test]
fn every_alias_has_a_reason() {
    assert!(versions().aliases.iter().all(|a| !a.why.is_empty()));
    assert!(versions().extras.iter().all(|x| !x.why.is_empty()));
}

/// What is checked in is what the headers give.
#[test]
#[ignore = "needs an unpacked Linux 6.12, named by AMDEV_LINUX_SOURCE"]
fn checked_in_tables_equal_what_the_headers_give() {
    let linux = std::env::var("AMDEV_LINUX_SOURCE").expect("AMDEV_LINUX_SOURCE names an unpacked Linux 6.12");
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_regs-gen"))
        .args(["--linux", &linux, "--check"])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}
