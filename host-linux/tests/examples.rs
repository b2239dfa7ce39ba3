//! The examples do what they say.

#[path = "../examples/devices.rs"]
mod devices;
#[path = "../examples/vfio_user.rs"]
mod vfio_user;

use amdev_sim::serve::{Options, serve};

#[test]
fn a_gpu_behind_a_socket_copies_and_is_left_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("gpu.sock");
    let (ready, is_ready) = std::sync::mpsc::channel();
    let served = socket.clone();
    // It serves until the process ends.
    std::thread::spawn(move || {
        let options = Options::parse("navi31,delays=off").unwrap();
        serve(options, &served, || ready.send(()).unwrap()).unwrap();
    });
    is_ready.recv().unwrap();
    let data: Vec<u8> = (0..200_001u32).map(|i| (i % 251) as u8).collect();
    let (back, done) = vfio_user::run(&socket, &data).unwrap();
    assert!(back == data);
    assert_eq!(done, "cold boot: no secure OS was running");
    let (_, done) = vfio_user::run(&socket, &data).unwrap();
    assert_eq!(done, "warm boot: this driver had left the GPU in order");
}

#[test]
fn every_way_to_a_device_lists_its_devices_and_checks() {
    let (found, checks) = devices::run();
    assert!(found.iter().any(|f| f.device == "sim:navi31" && f.problem.is_none()), "{found:?}");
    for name in ["IOMMU", "locked memory", "huge pages"] {
        assert!(checks.iter().any(|c| c.name == name), "{name}");
    }
}
