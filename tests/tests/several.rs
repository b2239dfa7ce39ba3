//! Several GPUs in one machine, on one thread.

use amdev_cli::sim::{MachineTime, SimBus};
use amdev_core::boot::{self, Options, Path};
use amdev_core::device::Probe;
use amdev_core::iface::{AllocFlags, Iface as _};
use amdev_core::ip::{Slot, Task, drive};
use amdev_core::mm::{Block, VaRange};
use amdev_core::runtime::{Runtime, Sizes};
use amdev_sim::{Config, SimGpu};
use amdev_tests::gpus::{copy, firmware};

/// GPUs of one machine.
fn machine(text: &str) -> (MachineTime, Vec<SimGpu>, Vec<SimBus>) {
    let time = MachineTime::default();
    let gpus: Vec<SimGpu> = Config::parse(text).unwrap().each().map(SimGpu::new).collect();
    let buses: Vec<SimBus> = gpus.iter().map(|gpu| SimBus::in_machine(gpu.clone(), &time)).collect();
    for a in &buses {
        for b in buses.iter().filter(|b| !std::ptr::eq(*b, a)) {
            assert!(a.reach_peer(b));
        }
    }
    (time, gpus, buses)
}

/// Boots all of them, interleaved.
fn boot_all(buses: Vec<SimBus>) -> Vec<(Probe<SimBus>, boot::Report)> {
    let mut probes: Vec<Probe<SimBus>> = buses.into_iter().map(|bus| Probe::open(bus).unwrap()).collect();
    let mut images: Vec<_> = probes.iter().map(|p| firmware(&p.ips).unwrap()).collect();
    let mut reports: Vec<Option<boot::Report>> = vec![None; probes.len()];
    let slots: Vec<Slot> = probes.iter().map(|_| Slot::new()).collect();
    let mut futures = Vec::new();
    for (((probe, fw), slot), report) in probes.iter_mut().zip(&mut images).zip(&slots).zip(&mut reports) {
        futures.push(Box::pin(probe.boot_in(slot, fw, Options::default(), report)));
    }
    let mut tasks: Vec<Task<'_>> =
        futures.iter_mut().zip(&slots).map(|(f, slot)| Task::new(f.as_mut(), slot)).collect();
    drive(&mut tasks, &mut |_, _| ());
    for task in &tasks {
        assert_eq!(task.result(), Some(Ok(())));
    }
    drop(tasks);
    drop(futures);
    probes.into_iter().zip(reports).map(|(p, r)| (p, r.unwrap())).collect()
}

#[test]
fn eight_gpus_boot_in_at_most_1_2_times_the_time_of_one() {
    for name in ["navi31", "navi48"] {
        let took = [1, 8].map(|count| {
            let (time, gpus, buses) = machine(&format!("{name},count={count}"));
            let booted = boot_all(buses);
            assert!(booted.iter().all(|(_, report)| report.path == Path::Cold));
            assert!(gpus.iter().all(|gpu| gpu.violations().is_empty()));
            time.now_ns()
        });
        assert!(took[1] * 10 <= took[0] * 12, "{name}: eight take {} ns, one {} ns", took[1], took[0]);
    }
}

#[test]
fn gpus_share_addresses_and_copy_into_each_others_memory() {
    for name in ["navi31", "navi48"] {
        let (_, gpus, buses) = machine(&format!("{name},count=3"));
        let booted = boot_all(buses);
        let mut virt = vec![Block::EMPTY; 1024];
        let va = VaRange::new(&mut virt).unwrap();
        let mut storage: Vec<_> =
            booted.iter().map(|_| (vec![Block::EMPTY; 256], vec![Block::EMPTY; 256])).collect();
        let sizes = Sizes { staging: 1 << 16, kernargs: 1 << 16, timeout_us: 2_000_000, ..Sizes::default() };
        let mut runtimes: Vec<_> = booted
            .into_iter()
            .zip(&mut storage)
            .map(|((probe, report), (boot, pool))| {
                Runtime::new(probe.into_gpu(report.ready, boot, pool, &va).unwrap(), sizes).unwrap()
            })
            .collect();
        for runtime in &mut runtimes {
            copy(runtime).unwrap();
        }
        let data: Vec<u8> = (0..0x8000u32).flat_map(|i| (i * 7 + 1).to_le_bytes()).collect();
        let len = data.len() as u64;
        let buffers: Vec<_> =
            runtimes.iter_mut().map(|r| r.alloc(len, AllocFlags::CONTIGUOUS).unwrap()).collect();
        for (i, a) in buffers.iter().enumerate() {
            let others = buffers.iter().enumerate().filter(|(j, _)| *j != i);
            assert!(others.clone().all(|(_, b)| a.va + len <= b.va || b.va + len <= a.va));
            for (j, b) in others {
                let segment = runtimes[j].iface().peer_segment(b).unwrap();
                runtimes[i].iface().map_peer(b, &[segment]).unwrap();
            }
        }
        // 0 writes to 1; 2 reads from 1; 0 reads from 2.
        runtimes[0].write(&buffers[0], &data).unwrap();
        for (who, to, from) in [(0, 1, 0), (2, 2, 1), (1, 0, 2)] {
            let ticket = runtimes[who].copy(&buffers[to], &buffers[from], len).unwrap();
            runtimes[who].wait(ticket, 2_000_000).unwrap();
            // What came in through the window of the owner waits in its HDP.
            runtimes[to].iface().flush_hdp().unwrap();
            let mut back = vec![0; data.len()];
            runtimes[to].read(&buffers[to], &mut back).unwrap();
            assert!(back == data, "{name}: {who} copies from {from} to {to}");
            if to == 1 {
                runtimes[0].write(&buffers[0], &vec![0; data.len()]).unwrap();
                runtimes[0].synchronize().unwrap();
            }
        }
        for (i, runtime) in runtimes.iter_mut().enumerate() {
            for (j, b) in buffers.iter().enumerate().filter(|(j, _)| *j != i) {
                runtime.iface().unmap_peer(b).unwrap_or_else(|e| panic!("{i} unmaps {j}: {e}"));
            }
        }
        for (runtime, buffer) in runtimes.iter_mut().zip(buffers) {
            runtime.synchronize().unwrap();
            runtime.free(buffer).unwrap();
            runtime.release().unwrap();
        }
        for gpu in gpus {
            assert_eq!(gpu.violations(), [], "{name}");
        }
    }
}
