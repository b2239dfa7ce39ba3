//! The custom firmware between its windows and the GPU.

use super::super::BridgeConfig;
use super::*;

fn control(m: &mut Machine, value: u16, index: u16) {
    let setup = Setup { request_type: 0x40, request: 0xf2, value, index, length: 0 };
    let id = m.submit(Transfer::Control { setup, data: Vec::new() });
    while m.wait() {
        if m.poll().is_some_and(|c| c.id == id && c.status == Status::Success) {
            return;
        }
    }
    panic!("no answer");
}

#[test]
fn blocks_are_read_once_the_gpu_has_written_a_completion() {
    let mut m = Machine::new(BridgeConfig::parse("navi48,bridge=custom,pcie=on").unwrap());
    m.configure(1);
    let gpu = m.gpu.clone();
    m.memory.let_dma(&gpu, true);
    gpu.lock().dma.write(0x20_0000 + 0x4000, &[0xab; 1024]).unwrap();
    // A completion of before does not count.
    gpu.lock().dma.write(0x82_2000, &[0; 16]).unwrap();
    control(&mut m, 0x8002, 0x0101);
    let id = m.submit(Transfer::In { endpoint: 0x81, stream: 0, length: 1024 });
    assert!(!m.wait(), "nothing comes by itself");
    // Another entry's phase is none of the first.
    gpu.lock().dma.write(0x82_2010, &[0; 16]).unwrap();
    assert!(!m.wait());
    gpu.lock().dma.write(0x82_200c, &[0; 4]).unwrap();
    assert!(m.wait());
    let c = m.poll().unwrap();
    assert_eq!((c.id, c.status, c.data), (id, Status::Success, vec![0xab; 1024]));
    assert!(m.violations.is_empty());
}

#[test]
fn requests_of_the_gpu_reach_nothing_but_the_windows_of_a_bridge_that_passes_them() {
    let mut m = Machine::new(BridgeConfig::parse("navi48,bridge=custom,pcie=on").unwrap());
    let gpu = m.gpu.clone();
    let reaches = |at: u64| gpu.lock().dma.read(at, &mut [0; 4]).is_ok();
    assert!(!reaches(0x20_0000), "no bridge masters the bus yet");
    m.memory.let_dma(&gpu, true);
    let places = [0x1f_fffc, 0x20_0000, 0x27_fffc, 0x28_0000, 0x82_0000, 0x82_1000, 0x82_2ffc, 0x82_3000];
    assert_eq!(places.map(reaches), [false, true, true, false, true, false, true, false]);
    m.set_perst(true);
    assert!(!reaches(0x20_0000), "nor while the link is in reset");
}
