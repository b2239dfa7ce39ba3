//! The known faults of the reference driver (tinygrad 0.11.0), what is right instead, and the tests that
//! hold this driver to it. Faults 25 to 28 (SQTT and USB) are no part of this yet.

use std::path::Path;

/// A fault: its number, what is right, and tests as `file::name`.
type Fault = (u8, &'static str, &'static [&'static str]);

const FAULTS: &[Fault] = &[
    (
        1,
        "IH rings have the size that is allocated for them",
        &[
            "core/src/ip/ih.rs::rb_size_is_the_logarithm_of_the_ring_length_in_dwords",
            "tests/tests/e2e_misuse.rs::overlapping_structures",
            "tests/tests/golden_boot.rs::no_deviation_can_be_left_out",
        ],
    ),
    (
        2,
        "the RLC's autoload is awaited, then an idle command processor, each with a deadline",
        &[
            "core/src/ip/tests.rs::an_autoload_that_never_ends_is_a_timeout_that_names_the_register",
            "core/src/ip/tests.rs::an_autoload_that_ends_with_a_busy_command_processor_is_a_timeout_too",
        ],
    ),
    (
        3,
        "a secure OS with a dead SMU does not abort the boot",
        &[
            "core/src/ip/tests.rs::a_dead_smu_is_found_out_within_100_ms_and_is_no_error",
            "tests/tests/states.rs::another_drivers_gpu_is_reset_by_the_smu_and_where_that_is_dead_by_the_bus",
            "tests/tests/golden_boot.rs::reset_smu_dead",
        ],
    ),
    (
        4,
        "the wait for the secure OS has a deadline",
        &["host-linux/tests/cli.rs::a_hang_ends_with_the_register_that_was_waited_for"],
    ),
    (
        5,
        "64-bit bases are read as such, what is harvested is left out",
        &[
            "tests/tests/discovery.rs::wide_bases_and_harvest_give_the_plain_list_without_the_harvested_instances",
            "tests/tests/discovery.rs::the_harvest_list_ends_at_its_first_zero_id",
            "tests/tests/discovery.rs::inactive_wgps_reduce_the_compute_units_of_a_shader_array",
        ],
    ),
    (
        6,
        "PSP command and frame are flushed before the write pointer moves, which wraps",
        &[
            "core/src/ip/tests/psp_commands.rs::the_hdp_is_flushed_before_the_psp_write_pointer_moves",
            "core/src/ip/tests/psp_commands.rs::the_last_frame_of_the_psp_ring_stands_at_0xffc0_and_the_next_at_0",
        ],
    ),
    (
        7,
        "an image is copied into the message buffer as it is, and never beyond the buffer's end",
        &[
            "core/src/ip/tests/psp_commands.rs::an_image_fills_the_message_buffer_to_its_own_end_and_no_further",
        ],
    ),
    (
        8,
        "after a warm boot MMHUB is told of changed page tables",
        &[
            "tests/tests/golden_boot.rs::flush_tlb_mm",
            "tests/tests/states.rs::after_a_warm_boot_both_hubs_are_told_of_changed_page_tables",
        ],
    ),
    (
        9,
        "the register just past BAR5 is reached by index and data",
        &["core/src/ip/tests.rs::the_first_register_beyond_bar5_is_reached_by_index_and_data"],
    ),
    (
        10,
        "the IP key manager is loaded on MP0 14, and the policy step taken only with a policy table",
        &[
            "core/src/chip.rs::the_ip_key_manager_is_loaded_before_the_secure_os_on_mp0_14",
            "tests/tests/e2e_mistakes.rs::mistake_a_component_of_the_secure_os_left_out_is_firmware_order",
            "tests/tests/golden_boot.rs::no_deviation_can_be_left_out",
        ],
    ),
    (
        11,
        "Navi32 is gfx1101; descriptions of the core of version 2 are read",
        &[
            "core/src/chip.rs::gc_11_0_3_is_gfx1101_and_gc_11_0_1_is_unknown",
            "tests/tests/discovery.rs::every_version_of_the_core_description_survives_a_round_trip",
        ],
    ),
    (
        12,
        "shutting down takes every queue in use down and waits until it is idle",
        &[
            "core/src/ip/tests.rs::fini_awaits_every_queue_in_use",
            "core/src/ip/tests.rs::an_sdma_engine_that_stays_busy_is_a_timeout",
        ],
    ),
    (
        13,
        "configuration space and BARs are restored after a reset",
        &[
            "core/src/ip/tests.rs::a_reset_lets_the_host_save_and_restore_and_forgets_what_was_known",
            "tests/tests/states.rs::configuration_space_and_bars_are_as_before_after_each_reset_of_the_whole_gpu",
        ],
    ),
    (
        14,
        "unmapping flushes the TLBs, once for each call",
        &[
            "tests/tests/mm_props.rs::calls_agree_with_a_plain_model",
            "tests/tests/e2e_mistakes.rs::mistake_no_tlb_flush_is_stale_tlb",
        ],
    ),
    (
        15,
        "entries of what is unmapped are zero",
        &["tests/tests/mm_props.rs::c13_empty_tables_give_way_to_a_huge_page"],
    ),
    (
        16,
        "freeing memory of the host unmaps it",
        &["tests/tests/mm_props.rs::host_memory_gives_its_addresses_back_and_cannot_be_freed_as_vram"],
    ),
    (
        17,
        "huge pages have aligned physical addresses",
        &["tests/tests/mm_props.rs::c16_fragments_are_as_wide_as_both_addresses_and_the_run_allow"],
    ),
    (
        18,
        "a fragment is no wider than the alignment of both addresses",
        &["tests/tests/mm_props.rs::c16_fragments_are_as_wide_as_both_addresses_and_the_run_allow"],
    ),
    (
        19,
        "a page table that was allocated at boot goes back to the boot region",
        &["tests/tests/mm_props.rs::a_table_of_the_boot_goes_back_to_the_boot_region"],
    ),
    (
        20,
        "an allocation that fails gives its virtual addresses back",
        &[
            "tests/tests/gives_back.rs::memory_that_is_not_there_takes_no_addresses",
            "tests/tests/mm_props.rs::a_bus_error_at_any_access_leaves_nothing_behind",
        ],
    ),
    (
        21,
        "the root table has 512 entries",
        &["tests/tests/mm_props.rs::addresses_that_four_levels_cannot_translate_are_refused"],
    ),
    (
        22,
        "an aligned request that fits is granted, freeing twice is refused",
        &[
            "tests/tests/mm_props.rs::the_allocator_agrees_with_a_plain_model",
            "tests/tests/golden_tlsf.rs::every_recorded_allocation_succeeds_or_fails_as_recorded",
        ],
    ),
    (
        23,
        "a ring never overwrites itself",
        &[
            "tests/tests/rings.rs::one_dword_of_a_ring_stays_free",
            "tests/tests/rings.rs::a_full_ring_waits_for_the_engine_and_gives_up_at_the_deadline",
            "tests/tests/rings.rs::sdma_packets_arrive_whole_and_in_order",
        ],
    ),
    (
        24,
        "code objects without a symbol table, with several descriptors, with relocations and .bss load",
        &[
            "tests/tests/code_objects.rs::a_relocatable_object_is_laid_out_and_its_entry_found",
            "tests/tests/code_objects.rs::rel64_is_symbol_plus_addend_minus_place_in_signed_64_bits",
            "tests/tests/golden_facts.rs::all_real_objects_match_their_facts",
        ],
    ),
];

#[test]
fn each_fault_from_1_to_24_has_a_test_and_the_test_exists() {
    let numbers: Vec<u8> = FAULTS.iter().map(|f| f.0).collect();
    assert_eq!(numbers, (1..=24).collect::<Vec<u8>>());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (number, right, tests) in FAULTS {
        assert!(!tests.is_empty(), "fault {number}: {right}");
        for test in *tests {
            let (file, name) = test.split_once("::").unwrap();
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{test}: {e}"));
            // Some stand in a list of a macro.
            let listed = text.contains("macro_rules!")
                && text.split_whitespace().any(|w| w.trim_end_matches(';') == name);
            assert!(text.contains(&format!("fn {name}(")) || listed, "fault {number}: there is no {test}");
        }
    }
}

#[test]
fn each_deviation_from_the_reference_with_a_number_is_one_of_these_faults() {
    let all = amdev_tests::replay::Deviations::load().unwrap();
    assert!(all.entries.len() <= 15);
    for fault in all.entries.iter().filter_map(|e| e.fault) {
        assert!(FAULTS.iter().any(|f| u32::from(f.0) == fault), "{fault}");
    }
}
