//! `amdev-sim serve` by the text of the protocol: a client of raw bytes against the real binary.
#![cfg(target_os = "linux")]

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod client;
#[path = "../served/mod.rs"]
mod served;

use client::{Client, access, map, region, unmap, version, words};
use served::Server;

const EINVAL: u32 = 22;
const EEXIST: u32 = 17;
const ENOTSUP: u32 = 95;

impl Server {
    fn start(name: &str, gpu: &str) -> Server {
        let socket = std::env::temp_dir().join(format!("amdev-sim-{name}-{}.sock", std::process::id()));
        Server::at(socket, gpu)
    }

    fn at(socket: PathBuf, gpu: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdev-sim"));
        command.args(["serve", "--gpu", gpu, "--socket"]).stderr(Stdio::null());
        Server::spawn(&mut command, socket)
    }

    fn raw(&self) -> Client {
        Client::connect(&self.socket)
    }

    /// A client that has agreed on the version.
    fn client(&self) -> Client {
        let mut c = self.raw();
        assert_eq!(c.ask(1, &version("{}")).error, 0);
        c
    }
}

fn memfd(len: u64) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, len).unwrap();
    fd
}

fn signalled(fd: &OwnedFd, ms: i64) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let time = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    if poll(&mut fds, Some(&time)).unwrap() == 0 {
        return false;
    }
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).unwrap();
    true
}

fn device_info(c: &mut Client) -> Vec<u8> {
    c.ask(4, &words(&[16, 0, 0, 0])).data
}

#[test]
fn the_version_is_agreed_on_first_and_once() {
    let server = Server::start("version", "navi31");
    let mut c = server.raw();
    assert_eq!(c.ask(4, &words(&[16, 0, 0, 0])).error, EINVAL, "nothing before the version");
    assert_eq!(c.ask(1, &[0, 0]).error, EINVAL, "too short");
    assert_eq!(c.ask(1, b"\0\0\0\0{}").error, EINVAL, "not terminated");
    assert_eq!(c.ask(1, &version("{")).error, EINVAL, "no JSON");
    assert_eq!(c.ask(1, &version("[]")).error, EINVAL, "no object");
    assert_eq!(c.ask(1, &version(r#"{"capabilities":{"max_msg_fds":"x"}}"#)).error, EINVAL);
    let reply = c.ask(1, &[0, 0, 9, 0]);
    assert_eq!((reply.error, &reply.data[..4]), (0, &[0, 0, 0, 0][..]), "no minor version above ours");
    let text = reply.data[4..].strip_suffix(&[0]).expect("terminated");
    let json: serde_json::Value = serde_json::from_slice(text).unwrap();
    let caps = &json["capabilities"];
    assert!(caps["max_msg_fds"].as_u64() >= Some(1) && caps["max_dma_maps"].as_u64() >= Some(64), "{json}");
    assert!(caps["max_data_xfer_size"].as_u64() >= Some(1 << 20), "{json}");
    assert_eq!(c.ask(1, &version("{}")).error, EINVAL, "once");
    assert_eq!(device_info(&mut c).len(), 16, "and the connection lives");
}

#[test]
fn another_major_version_closes_the_connection_and_the_next_client_is_served() {
    let server = Server::start("major", "navi31");
    for major in [1u8, 0xff] {
        let mut c = server.raw();
        c.send(1, &[major, 0, 0, 0]);
        let mut rest = Vec::new();
        c.socket.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "no answer: {rest:?}");
    }
    assert_eq!(device_info(&mut server.client()).len(), 16);
}

#[test]
fn a_client_that_takes_no_descriptors_gets_none_and_reaches_memory_by_messages() {
    let server = Server::start("no-fds", "navi31,bar=256M");
    let mut c = server.raw();
    let reply = c.ask(1, &version(r#"{"capabilities":{"max_msg_fds":0}}"#));
    let text = reply.data[4..].strip_suffix(&[0]).unwrap();
    let told: serde_json::Value = serde_json::from_slice(text).unwrap();
    let caps = told["capabilities"].as_object().unwrap();
    for limit in ["max_msg_fds", "max_data_xfer_size", "max_dma_maps", "pgsizes"] {
        assert!(caps[limit].as_u64() > Some(0), "the server's own limits are told all the same: {told}");
    }
    for room in [32, 64] {
        let info = c.ask(5, &region(room, 0));
        assert_eq!((info.u32(0), info.u32(4), info.u64(16), info.fds.len()), (32, 3, 256 << 20, 0));
    }
    c.write(0, 0x10_0000, &[1, 2, 3, 4]).unwrap();
    assert_eq!(c.read(0, 0x10_0000, 4), Ok(vec![1, 2, 3, 4]));
    // What one client cannot take is no matter to the next.
    drop(c);
    let mut c = server.raw();
    assert_eq!(c.ask(1, &version(r#"{"capabilities":{"max_msg_fds":1}}"#)).error, 0);
    assert_eq!(c.ask(5, &region(64, 0)).fds.len(), 1);
}

#[test]
fn device_regions_and_interrupts_are_those_of_the_gpu() {
    let server = Server::start("info", "navi31,bar=256M,map=off");
    let mut c = server.client();
    assert_eq!(device_info(&mut c), words(&[16, 3, 9, 5]));
    assert_eq!(c.ask(4, &words(&[15, 0, 0, 0])).error, EINVAL);
    assert_eq!(c.ask(4, &words(&[16, 0, 0])).error, EINVAL);
    let sizes: Vec<(u32, u64)> = (0..9)
        .map(|i| {
            let r = c.ask(5, &region(32, i));
            assert_eq!((r.u32(0), r.u32(8), r.data.len(), r.fds.len()), (32, i, 32, 0), "region {i}");
            (r.u32(4), r.u64(16))
        })
        .collect();
    let want = [
        (3, 256 << 20),
        (0, 0),
        (3, 2 << 20),
        (0, 0),
        (0, 0),
        (3, 1 << 20),
        (1, 128 << 10),
        (3, 4096),
        (0, 0),
    ];
    assert_eq!(sizes, want);
    assert_eq!(c.ask(5, &region(32, 9)).error, EINVAL);
    assert_eq!(c.ask(5, &region(31, 0)).error, EINVAL);
    assert_eq!(c.ask(5, &region(32, 0)[..28]).error, EINVAL);
    let irqs: Vec<(u32, u32)> = (0..5)
        .map(|i| {
            let r = c.ask(7, &words(&[16, 0, i, 0]));
            assert_eq!((r.u32(0), r.u32(8), r.data.len()), (16, i, 16));
            (r.u32(4), r.u32(12))
        })
        .collect();
    assert_eq!(irqs, [(7, 1), (9, 1), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(c.ask(7, &words(&[16, 0, 5, 0])).error, EINVAL);
}

#[test]
fn a_mappable_window_comes_with_its_descriptor_when_there_is_room_for_the_capability() {
    let server = Server::start("map", "navi31,bar=256M");
    let mut c = server.client();
    let short = c.ask(5, &region(32, 0));
    assert_eq!((short.u32(0), short.u32(4), short.data.len(), short.fds.len()), (64, 0xf, 32, 0));
    let full = c.ask(5, &[region(64, 0), vec![0; 32]].concat());
    assert_eq!((full.u32(0), full.u32(12), full.data.len(), full.fds.len()), (64, 32, 64, 1));
    assert_eq!(c.ask(5, &region(64, 0)).fds.len(), 1, "a request without the room itself");
    assert_eq!((full.u32(32), full.u32(36), full.u32(40), full.u32(44)), (0x10001, 0, 1, 0));
    assert_eq!((full.u64(48), full.u64(56)), (0, 256 << 20), "one area, the whole window");
    // Messages and the mapping reach the same memory.
    let file = std::fs::File::from(full.fds.into_iter().next().unwrap());
    c.write(0, 0x10_0000, &[1, 2, 3, 4]).unwrap();
    let mut b = [0; 4];
    file.read_exact_at(&mut b, 0x10_0000).unwrap();
    assert_eq!(b, [1, 2, 3, 4]);
    file.write_all_at(&[5, 6, 7, 8], 0x10_0000).unwrap();
    assert_eq!(c.read(0, 0x10_0000, 4), Ok(vec![5, 6, 7, 8]));
    assert_eq!(c.ask(13, &[]).error, 0);
    assert_eq!(c.read(0, 0x10_0000, 4), Ok(vec![0; 4]), "a reset clears it");
}

#[test]
fn regions_are_accessed_in_the_sizes_they_have() {
    let server = Server::start("access", "navi31");
    let mut c = server.client();
    assert_eq!(c.read(7, 0, 4), Ok(vec![0x02, 0x10, 0x4c, 0x74]), "1002:744c");
    for n in [1, 2, 4, 8, 4096] {
        assert_eq!(c.read(7, 0, n).map(|d| d.len()), Ok(n as usize), "configuration space, {n} bytes");
    }
    assert_eq!(c.write(7, 4, &[6]), Ok(()));
    assert_eq!(c.read(7, 4, 2), Ok(vec![6, 0]));
    // RCC_CONFIG_MEMSIZE in MiB: 24 GiB less what is reserved.
    let size = c.read(5, 3555 * 4, 4).unwrap();
    assert_eq!(u32::from_le_bytes(size.try_into().unwrap()), 24560);
    for (offset, data) in [(0, vec![7; 1]), (0xffd, vec![1, 2, 3, 4, 5, 6, 7]), (4096, vec![9; 1 << 20])] {
        assert_eq!(c.write(0, offset, &data), Ok(()));
        assert_eq!(c.read(0, offset, data.len() as u32), Ok(data));
    }
    assert_eq!(c.read(6, 0, 2), Ok(vec![0x55, 0xaa]), "option ROM");
    for (region, offset, count, why) in [
        (7, 4094, 4, "past the end of configuration space"),
        (7, u64::MAX, 4, "offset wraps"),
        (5, 0, 0, "nothing"),
        (5, 2, 4, "unaligned register"),
        (5, 0, 2, "half a register"),
        (5, 1 << 20, 4, "past the registers"),
        (0, 0, (1 << 20) + 1, "more than max_data_xfer_size"),
        (1, 0, 4, "no such BAR"),
        (8, 0, 4, "no VGA"),
        (9, 0, 4, "no such region"),
    ] {
        assert_eq!(c.read(region, offset, count), Err(EINVAL), "{why}");
    }
    assert_eq!(c.write(2, 0, &[0; 3]), Err(EINVAL), "three bytes of doorbell");
    assert_eq!(c.write(6, 0, &[0; 4]), Err(EINVAL), "the ROM is not written");
    assert_eq!(c.ask(10, &access(5, 0, 8, &[0; 4])).error, EINVAL, "less data than said");
    assert_eq!(c.ask(10, &access(5, 0, 4, &[0; 8])).error, EINVAL, "more data than said");
    assert_eq!(c.ask(9, &access(5, 0, 4, &[0; 4])).error, EINVAL, "a read with data");
}

#[test]
fn dma_maps_are_checked_and_reached_only_when_mapped() {
    let server = Server::start("dma", "navi31");
    let mut c = server.client();
    let (a, b) = (memfd(0x10000), memfd(0x10000));
    let one = |fd| [AsFd::as_fd(fd)];
    assert_eq!(c.ask_fds(2, &map(3, 0, 0x10_0000, 0x8000), &one(&a)).error, 0);
    assert_eq!(c.ask_fds(2, &map(3, 0x8000, 0x10_8000, 0x8000), &one(&a)).error, 0, "adjacent");
    assert_eq!(c.ask_fds(2, &map(3, 0, 0x10_7000, 0x2000), &one(&b)).error, EEXIST, "overlap");
    assert_eq!(c.ask(2, &map(3, 0, 0x20_0000, 0x1000)).error, 0, "without memory");
    assert_eq!(c.ask(2, &map(1, 0, 0x20_0000, 0x1000)).error, EEXIST);
    assert_eq!(c.ask_fds(2, &map(1, 0, 0x30_0000, 0x1000), &one(&b)).error, 0, "to be read only");
    for (payload, why) in [
        (map(3, 0, 0x40_0000, 0), "empty"),
        (map(3, 0, 0x40_0800, 0x1000), "not a page"),
        (map(3, 0, 0x40_0000, 0x800), "not whole pages"),
        (map(4, 0, 0x40_0000, 0x1000), "unknown flag"),
        (map(3, 0, !0xfff, 0x2000), "wraps"),
        (map(3, 0xf000, 0x40_0000, 0x2000), "past the end of the file"),
        (map(3, 0, 0x40_0000, 0x1000)[..28].to_vec(), "short"),
    ] {
        assert_eq!(c.ask_fds(2, &payload, &one(&b)).error, EINVAL, "{why}");
    }
    assert_eq!(c.ask_fds(2, &map(3, 0, 0x40_0000, 0x1000), &[a.as_fd(), b.as_fd()]).error, EINVAL);
    let echoed = c.ask(3, &unmap(0, 0x10_0000, 0x10000));
    assert_eq!((echoed.error, echoed.data), (0, unmap(0, 0x10_0000, 0x10000)), "a range of two maps");
    assert_eq!(c.ask(3, &unmap(0, 0x10_0000, 0x10000)).error, 0, "a range of none");
    assert_eq!(c.ask_fds(2, &map(3, 0, 0x10_0000, 0x8000), &one(&a)).error, 0, "free again");
    assert_eq!(c.ask(3, &unmap(0, 0x10_0000, 0x1000)).error, EINVAL, "part of a map");
    assert_eq!(c.ask(3, &unmap(0, 0x10_0000, 0)).error, EINVAL);
    assert_eq!(c.ask(3, &unmap(1, 0x10_0000, 0x8000)).error, ENOTSUP, "dirty pages");
    assert_eq!(c.ask(3, &unmap(0, 0, 0x1000)[..20]).error, EINVAL);
    assert_eq!(c.ask(3, &unmap(2, 0, 0)).error, 0, "all");
    assert_eq!(c.ask(3, &unmap(0, 1 << 63, 1 << 63)).error, 0, "the upper half of the address space");
    assert_eq!(c.ask(3, &unmap(0, 1 << 63, (1 << 63) + 1)).error, EINVAL, "wraps");
    for i in 0..100u64 {
        assert_eq!(c.ask_fds(2, &map(3, 0, i << 20, 0x1000), &one(&b)).error, 0, "map {i}");
    }
}

#[test]
fn interrupts_go_to_the_eventfd_that_was_set() {
    let server = Server::start("irq", "navi31");
    let mut c = server.client();
    let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let set = |flags: u32, index: u32, start: u32, count: u32| words(&[20, flags, index, start, count]);
    assert_eq!(c.ask_fds(8, &set(0x24, 1, 0, 1), &[fd.as_fd()]).error, 0);
    assert!(!signalled(&fd, 0));
    assert_eq!(c.ask(8, &set(0x21, 1, 0, 1)).error, 0, "loopback");
    assert!(signalled(&fd, 1000));
    assert_eq!(c.ask(8, &[set(0x22, 1, 0, 1), vec![0]].concat()).error, 0);
    assert!(!signalled(&fd, 20), "a false boolean triggers nothing");
    assert_eq!(c.ask(8, &[set(0x22, 1, 0, 1), vec![1]].concat()).error, 0);
    assert!(signalled(&fd, 1000));
    for (payload, why) in [
        (set(0x24, 1, 1, 1), "second vector"),
        (set(0x24, 2, 0, 1), "no MSI-X"),
        (set(0x24, 9, 0, 1), "no such index"),
        (set(0x27, 1, 0, 1), "two kinds of data"),
        (set(0x20, 1, 0, 1), "no kind of data"),
        (set(0x04, 1, 0, 1), "no action"),
        (set(0x64, 1, 0, 1), "unknown flag"),
        (set(0x24, 1, u32::MAX, 2), "wraps"),
        (set(0x22, 1, 0, 1), "booleans that are not there"),
    ] {
        assert_eq!(c.ask(8, &payload).error, EINVAL, "{why}");
    }
    assert_eq!(c.ask(8, &set(0x24, 1, 0, 1)[..16]).error, EINVAL, "short");
    assert_eq!(c.ask(8, &set(0x21, 1, 0, 0)).error, 0, "switched off");
    assert_eq!(c.ask(8, &set(0x21, 1, 0, 1)).error, 0);
    assert!(!signalled(&fd, 20));
}

#[test]
fn unknown_commands_and_sizes_are_refused_and_the_connection_lives() {
    let server = Server::start("unknown", "navi31");
    let mut c = server.client();
    for command in [0, 6, 11, 12, 14, 15, 99, u16::MAX] {
        assert_eq!(c.ask(command, &[]).error, ENOTSUP, "command {command}");
    }
    assert_eq!(c.ask(13, &[0]).error, EINVAL, "a reset with a payload");
    let fd = memfd(4096);
    assert_eq!(c.ask_fds(4, &words(&[16, 0, 0, 0]), &[fd.as_fd()]).error, EINVAL, "a descriptor for nothing");
    // A size below the header's, and one far above every message.
    let short = c.message(4, 0, 8, &[]);
    c.socket.write_all(&short).unwrap();
    assert_eq!(c.receive().error, EINVAL);
    let long = c.message(10, 0, 16 + (4 << 20), &vec![0; 4 << 20]);
    c.socket.write_all(&long).unwrap();
    assert_eq!(c.receive().error, EINVAL);
    let odd = c.message(4, 3, 32, &words(&[16, 0, 0, 0]));
    c.socket.write_all(&odd).unwrap();
    assert_eq!(c.receive().error, EINVAL, "neither command nor reply");
    assert_eq!(device_info(&mut c), words(&[16, 3, 9, 5]));
}

#[test]
fn messages_come_in_pieces_in_batches_and_without_wish_for_a_reply() {
    let server = Server::start("pieces", "navi31");
    let mut c = server.client();
    let m = c.message(9, 0, 32, &access(7, 0, 4, &[]));
    for byte in &m {
        c.socket.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(c.receive().data[16..], [0x02, 0x10, 0x4c, 0x74]);
    // Many at once, answered in order; the silent ones not at all.
    let mut batch = Vec::new();
    for i in 0..200u32 {
        let flags = if i % 2 == 1 { 0x10 } else { 0 };
        batch.extend(c.message(10, flags, 36, &access(0, 0x1000, 4, &i.to_le_bytes())));
    }
    batch.extend(c.message(77, 0x10, 16, &[]));
    batch.extend(c.message(9, 0, 32, &access(0, 0x1000, 4, &[])));
    let last = c.id;
    let mut writer = c.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&batch).unwrap());
    let ids: Vec<u16> = (0..100).map(|_| c.receive().id).collect();
    assert!(ids.windows(2).all(|w| w[1] == w[0] + 2), "{ids:?}");
    let read = c.receive();
    assert_eq!((read.id, read.u32(16), read.flags), (last, 199, 1));
    sender.join().unwrap();
}

#[test]
fn the_next_client_finds_the_device_as_it_was_and_none_of_the_maps() {
    let server = Server::start("turns", "navi31");
    let fd = memfd(0x1000);
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut first = server.client();
    first.write(0, 0x5000, &[1, 2, 3, 4]).unwrap();
    assert_eq!(first.ask_fds(2, &map(3, 0, 0x10_0000, 0x1000), &[fd.as_fd()]).error, 0);
    assert_eq!(first.ask_fds(8, &words(&[20, 0x24, 1, 0, 1]), &[event.as_fd()]).error, 0);
    // The second waits for its turn; the first leaves in the middle of a message.
    let mut second = server.raw();
    second.send(1, &version("{}"));
    let m = first.message(9, 0, 32, &access(7, 0, 4, &[]));
    first.socket.write_all(&m[..20]).unwrap();
    drop(first);
    assert_eq!(second.receive().error, 0);
    assert_eq!(second.read(0, 0x5000, 4), Ok(vec![1, 2, 3, 4]));
    assert_eq!(second.ask_fds(2, &map(3, 0, 0x10_0000, 0x1000), &[fd.as_fd()]).error, 0, "no old map");
    assert_eq!(second.ask(8, &words(&[20, 0x21, 1, 0, 1])).error, 0);
    assert!(!signalled(&event, 20), "no old eventfd");
    assert_eq!(second.ask(13, &[]).error, 0);
    assert_eq!(second.read(0, 0x5000, 4), Ok(vec![0; 4]), "a reset loses memory");
    assert_eq!(second.read(7, 4, 2), Ok(vec![7, 0]), "and posts the device");
}

#[test]
fn a_function_level_reset_is_asked_for_in_configuration_space_and_takes_real_time() {
    let server = Server::start("flr", "navi31");
    let mut c = server.client();
    c.write(7, 0x64 + 8, &0x8000u16.to_le_bytes()).unwrap();
    assert_eq!(c.read(7, 4, 2), Ok(vec![0, 0]), "memory space and bus mastering are off");
    c.write(7, 4, &[6, 0]).unwrap();
    c.write(7, 0x24, &0xf000_0000u32.to_le_bytes()).unwrap();
    assert_eq!(c.read(5, 3555 * 4, 4), Ok(vec![0xff; 4]), "the device does not answer yet");
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(c.read(5, 3555 * 4, 4), Ok(vec![0; 4]), "nobody has posted it");
}

#[test]
fn a_device_put_to_sleep_answers_in_configuration_space_alone_until_it_is_woken() {
    let server = Server::start("sleep", "navi31");
    let mut c = server.client();
    let vram = c.read(5, 3555 * 4, 4).unwrap();
    assert_ne!(vram, [0xff; 4]);
    c.write(7, 0x4c, &[3, 0]).unwrap();
    assert_eq!(c.read(7, 0, 2), Ok(vec![0x02, 0x10]));
    assert_eq!(c.read(5, 3555 * 4, 4), Ok(vec![0xff; 4]));
    c.write(7, 0x4c, &[0, 0]).unwrap();
    assert_eq!(c.read(5, 3555 * 4, 4), Ok(vram), "it is as it was");
}

#[test]
fn time_passes_without_accesses() {
    // The SMU answers after a while of its own; nobody looks meanwhile.
    let server = Server::start("time", "navi31,state=amdev");
    let mut c = server.client();
    let mp1 = |n: u64| (0x16000 + 0x282 + (n - 66)) * 4;
    c.write(5, mp1(90), &[0; 4]).unwrap();
    c.write(5, mp1(82), &[0; 4]).unwrap();
    c.write(5, mp1(66), &2u32.to_le_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(c.read(5, mp1(90), 4), Ok(vec![1, 0, 0, 0]));
}

#[test]
fn sigterm_ends_it_with_an_account() {
    let server = Server::start("term", "navi31");
    let mut c = server.client();
    c.read(5, 3555 * 4, 4).unwrap();
    c.read(5, 0x4, 4).unwrap();
    let account = server.stop();
    assert_eq!(account["counts"]["register_reads"], 2, "{account}");
    assert!(account["violations"].is_array(), "{account}");
}

#[test]
fn a_socket_of_a_dead_server_is_replaced_and_a_live_one_is_not() {
    let mut server = Server::start("stale", "navi31");
    let second = |path: &Path| {
        Command::new(env!("CARGO_BIN_EXE_amdev-sim"))
            .args(["serve", "--gpu", "navi31", "--socket"])
            .arg(path)
            .output()
            .unwrap()
    };
    let out = second(&server.socket);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("in use"));
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let again = Server::at(server.socket.clone(), "navi31");
    assert_eq!(device_info(&mut again.client()).len(), 16);
}

#[test]
fn an_idle_server_uses_no_processor_time() {
    let server = Server::start("idle", "navi31");
    let mut c = server.client();
    device_info(&mut c);
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let (before, start) = (ticks(), Instant::now());
    std::thread::sleep(Duration::from_millis(500));
    // 100 ticks are a second.
    assert!(ticks() - before <= 2, "{} ticks in {:?}", ticks() - before, start.elapsed());
}
