//! Checksums of firmware files with which the golden traces were taken.

//! Generated from `tests/golden/fw.json`; a test compares them.

/// A file of a known package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// Its name.
    pub file: &'static str,
    /// Its SHA-256, lower-case hexadecimal.
    pub sha256: &'static str,
    /// The versions of Debian's `firmware-amd-graphics` that have it.
    pub packages: &'static [&'static str],
}

/// The files of every supported GPU in the known packages, sorted by name.
pub static PINNED: &[Pinned] = &[
    Pinned {
        file: "gc_11_0_0_imu.bin",
        sha256: "b4f8fc056b45709a6abf48e7885fb1b4ab8d3cc092cbfa2c554a78564a6403bc",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_11_0_0_mec.bin",
        sha256: "1dd1de8ecf5455ea4719c502b64b32ac18763d5601128c01b4a4a36211a122c2",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_11_0_0_mec.bin",
        sha256: "a9ba80188b485c458e003cac1bb05bc670c9887ee39c0be4f6ab56ad01b83e44",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_11_0_0_rlc.bin",
        sha256: "dabd49039772d02f5fd5e48dc21d35ad52a6b1283b470dabca86ca159c4c7c8e",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_11_0_2_imu.bin",
        sha256: "9befca62b0b0cfd252c3df4a9edca295526f4d43821cd99a6326454995a6ca2d",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_11_0_2_mec.bin",
        sha256: "19bf080d6e672de5ed3fb86e3fdbdda4d700d8e3bda2dbdcc923101484ad645b",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_11_0_2_mec.bin",
        sha256: "31d006c0a7f74a48f71566348a54036a6d6bba91efea3dcbff7e46f908c36960",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_11_0_2_rlc.bin",
        sha256: "b43eb2fd0600f50a1a5796bc9983d6b39b5c20960234920f5e89cb362193e0b8",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_11_0_3_imu.bin",
        sha256: "beaf704d5acdf4623456b0d0cbcea8b8e428058340cd922a259a9045f5c457a3",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_11_0_3_mec.bin",
        sha256: "520697e1def07d5bf3d0aeffa8abdd881f61cd7142dee6febffee85a13317d04",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_11_0_3_mec.bin",
        sha256: "a37bc1a4e245300a5c3e26da34ea213842447d7df6c5c81e9fc78887a2fde26f",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_11_0_3_rlc.bin",
        sha256: "890d8e0123efb40c0179dd8ac3e9af073a0b87cbbccfec1db54e5ed2315a8d39",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_11_0_3_rlc.bin",
        sha256: "cb26d96cad14f6756142f16bf4f8430bfd64d2b12e7881289ae0ee9ee3dbce35",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_0_imu.bin",
        sha256: "95632603c7ebd1f4fffb3945e5414367bd1356a780e5f452b348e14d5c51225c",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_0_imu.bin",
        sha256: "aa15e5b3156bffc45e0c50bccbcd364fbd3f958531b695b7487a803d780b8328",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_0_me.bin",
        sha256: "17487eb283d479ddb6331bc850a623e3f1217907e25aa5acf89602fb3eaeaf94",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_0_me.bin",
        sha256: "36a5fcd133c4b6728da654aa5e8f40ac0cabc84c338c98b41b908cb9be9c47d1",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_0_mec.bin",
        sha256: "28b1e5bae440044887bab53a374db7bb971f7cc2780ab2b55c561e19f24d7fac",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_0_mec.bin",
        sha256: "bc82a817267c3fa451435210b30dcc050e4658967673d1857b60d42d63b644e7",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_0_pfp.bin",
        sha256: "5ec7a4341c22676da98d64cbc8dc5d820f3f13f199ea7e572f4064de406e715c",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_0_pfp.bin",
        sha256: "dae475f419fc9dffc0d9dc7561d9cf50614124918e0a4c862d46b10812237de8",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_0_rlc.bin",
        sha256: "6436b582734a413456fff3d3c7195e71cc9e78a7ed31ee21c83ffd6fae1ad186",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "gc_12_0_1_imu.bin",
        sha256: "01603dd2f61a3c84650f15448aedd6132d2693106a3a42c6db7a72cf9bd1ed33",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_1_imu.bin",
        sha256: "b3b301fb636efc77b63ce4d2ced0f90c851d03c19681852faa45598e6f5773fd",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_1_me.bin",
        sha256: "f47fc72ade16f6bd67dc798c8668f620fde1acf6d9e9e9e5627164d312687347",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_1_me.bin",
        sha256: "f8e3e77f59e42670f748fdf059f15d76c5197bc1682c2edd344fa25c31a78143",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_1_mec.bin",
        sha256: "b59371dc5185beba02eb2bf53061e2d2dd3792b278bc2199fd51db1b1888677a",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_1_mec.bin",
        sha256: "d182735fcd012a0ef13dd6a6a4783a8cddce7327d668e5819d8b867fb2ca6288",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_1_pfp.bin",
        sha256: "585c0d3aa40378b55d576a667a91209dc72696ea2569b42473d62bc2ff76d60d",
        packages: &["20260916"],
    },
    Pinned {
        file: "gc_12_0_1_pfp.bin",
        sha256: "9bbb1f6f8e6bae99ccf65d78c7102d9616143d4fbeced5fa26182805dfe5b24a",
        packages: &["20250410"],
    },
    Pinned {
        file: "gc_12_0_1_rlc.bin",
        sha256: "6ba4459532246a5c415d3cb33c9b1248294e48f67b827e2accb292a8d1a5c0ec",
        packages: &["20250410", "20260916"],
    },
    Pinned {
        file: "psp_13_0_0_sos.bin",
        sha256: "2a211d631750bda24c7c56cef3dbfc34bdae22e78d5d5e6e87ba421596af5609",
        packages: &["20250410"],
    },
    Pinned {
        file: "psp_13_0_0_sos.bin",
        sha256: "4a51299f6d0a15bbba9694419f7891e6accc01dbd2dd67c06add7bfd75a45ac6",
        packages: &["20260916"],
    },
    Pinned {
        file: "psp_13_0_10_sos.bin",
        sha256: "0bcaaad9cd8578d3841ae69155a6bd4fc3ceae8f4fb5a6ba4f576e7ace94d1d9",
        packages: &["20260916"],
    },
    Pinned {
        file: "psp_13_0_10_sos.bin",
        sha256: "d3ef69a400dc9aca0719db37b44d16ce56b8db628372e4f8a56373a5aa23db30",
        packages: &["20250410"],
    },
    Pinned {
        file: "psp_13_0_7_sos.bin",
        sha256: "2470bb355359d5165481d7198485632347e7d15cd2512f431730306fa3e637ce",
        packages: &["20250410"],
    },
    Pinned {
        file: "psp_13_0_7_sos.bin",
        sha256: "94db505fa6482f258c33a0a8d412050f6d843ab4ada368252e988f82f8a26fa8",
        packages: &["20260916"],
    },
    Pinned {
        file: "psp_14_0_2_sos.bin",
        sha256: "7b538448b57d4f9dd06b2eea90d4f86a16e65e3027cdecee8db71c2c5f1fa243",
        packages: &["20260916"],
    },
    Pinned {
        file: "psp_14_0_2_sos.bin",
        sha256: "c2b5e72c7294a2dadb2b56dbb8f11b9082af0e11f96869f1e71f9e8969e66469",
        packages: &["20250410"],
    },
    Pinned {
        file: "psp_14_0_3_sos.bin",
        sha256: "28469a0857c813c54a0492423cdf0b0caf757428400036377e19c47e5af62478",
        packages: &["20260916"],
    },
    Pinned {
        file: "psp_14_0_3_sos.bin",
        sha256: "7e21376e55ecca79cd59fe7729eb9b1963ed2d7d24e13e86877cc16dd89a2e68",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_6_0_0.bin",
        sha256: "1f363527ae9eb710dab0749bfd313aa2f993e06f46b1653190e5af4ec51f9c5e",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_6_0_0.bin",
        sha256: "82cd01a24171af12de6c7ac4ee7471aa2dfcf51f9677e7bae9cd4c75e07761ee",
        packages: &["20260916"],
    },
    Pinned {
        file: "sdma_6_0_2.bin",
        sha256: "16c374344d2894da751f7028f9ec1f7520035fa9548d8c750d99a00a4afa86c7",
        packages: &["20260916"],
    },
    Pinned {
        file: "sdma_6_0_2.bin",
        sha256: "217054a65aa5fd8d090b8f88d1d4d321c15dff58468cb1080c5dc8f79b172880",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_6_0_3.bin",
        sha256: "d47ac4db523aa35d77b27d57c35d4c04f431229dec6c0d667c36d98b985a6933",
        packages: &["20260916"],
    },
    Pinned {
        file: "sdma_6_0_3.bin",
        sha256: "edf1244cba845e5faeeb7db0bed00114bf91416690500a640d60fa010ca715c7",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_7_0_0.bin",
        sha256: "bb71de8e9310509ddc95c3cdd008ba9fa1dbc0a93a51411c60c5e899fcc2fe31",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_7_0_0.bin",
        sha256: "beaafb53993a106edd392392d5896245ae2a957c6d0f495d0002eec72ad8ad38",
        packages: &["20260916"],
    },
    Pinned {
        file: "sdma_7_0_1.bin",
        sha256: "52de03a24d3e32bc6ad8abfb2e04cabad35219e57433c33c8ce4dd1d60268c1c",
        packages: &["20250410"],
    },
    Pinned {
        file: "sdma_7_0_1.bin",
        sha256: "73c29e1c1714ebc95d2221ba56e187910902891593010653bf9518937e414a59",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_13_0_0.bin",
        sha256: "3551e1ef1f0cf542d1a728bdff123142e7cf86b550974d229668b01804c3992d",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_13_0_0.bin",
        sha256: "a654b5f40c90326e9cbd2c67529431b42a62fccb9ef7bedcd12d086a5a45240c",
        packages: &["20250410"],
    },
    Pinned {
        file: "smu_13_0_10.bin",
        sha256: "d1c59c86d7d2b021218fa6a5c24a64057d39a86e115c8be4b99938499baae28e",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_13_0_10.bin",
        sha256: "d231c55728ec11253b9852b151a00fcbf49ad15754489eceabd92da0aa638971",
        packages: &["20250410"],
    },
    Pinned {
        file: "smu_13_0_7.bin",
        sha256: "182ac030715164473e354c4564e3d40edc511172500c20eb1568d504f5f64f2b",
        packages: &["20250410"],
    },
    Pinned {
        file: "smu_13_0_7.bin",
        sha256: "6046f6379f42b4d3618151eace413d8c076ea374944afb770a8871ad79fcec55",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_14_0_2.bin",
        sha256: "1b2054e3f710d1ab8dbdf6ff35914ad376b51caa6337831260c955add874b2ee",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_14_0_2.bin",
        sha256: "f5c5ab70f24fc33b5d73a8aaddf2560f9386ad789134240a321cba6e3c01c002",
        packages: &["20250410"],
    },
    Pinned {
        file: "smu_14_0_3.bin",
        sha256: "7624724231b0986b59f59705e7c854c482193f6b3b591ebdda58cb62af81c010",
        packages: &["20260916"],
    },
    Pinned {
        file: "smu_14_0_3.bin",
        sha256: "8bcba250ab0a7157160f943ef91507b38fd4edb728e24f9e9d965824acb656c8",
        packages: &["20250410"],
    },
];
