//! An owner answers who asks what its GPU measures, whatever it is doing at the time.
#![cfg(target_os = "linux")]

use amdev_cli::bus_session::BusSession;
use amdev_cli::guard::Guarded;
use amdev_cli::owner::{Key, Owner};
use amdev_cli::progress::Silent;
use amdev_cli::session::{BootOptions, OpenOptions, Session as _};
use amdev_sim::bridge::{Bridge, BridgeConfig};
use amdev_usb::sim::SimPort;
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Ends the asking, also where the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn questions_in_the_middle_of_copies_are_answered_and_disturb_none() {
    for firmware in ["patched", "custom"] {
        let bridge = Bridge::new(BridgeConfig::parse(&format!("navi48,bridge={firmware}")).unwrap());
        let key = Key::usb(&format!("test-{firmware}-{}", std::process::id()));
        let bus = amdev_usb::backend::bus(Box::new(SimPort::new(bridge.clone()))).unwrap();
        let bus = bus.owned_by(Some(Owner::of(&key).unwrap()));
        let options = OpenOptions { synthetic_firmware: true, ..OpenOptions::default() };
        let mut session = BusSession::new(Guarded::new(bus), "usb".into(), &options).unwrap();
        session.boot(&BootOptions::default(), &mut Silent).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = Done(&done);
            let asker = scope.spawn(|| {
                let mut answers = Vec::new();
                while !done.load(Relaxed) {
                    let mut stream = key.ask().unwrap().expect("an owner");
                    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                    let mut text = String::new();
                    if stream.read_to_string(&mut text).is_ok() {
                        answers.push(text);
                    }
                }
                answers
            });
            let (from, to) = (session.alloc(1 << 20).unwrap(), session.alloc(1 << 20).unwrap());
            let start = Instant::now();
            for turn in 0u32.. {
                let data = vec![turn as u8 ^ 0x5a; 1 << 20];
                let mut back = vec![0; data.len()];
                session.upload(from, &data).unwrap();
                session.copy(to, from, data.len() as u64).unwrap();
                session.download(to, &mut back).unwrap();
                assert!(back == data, "{firmware}, turn {turn}");
                if start.elapsed() > Duration::from_millis(1500) && turn > 2 {
                    break;
                }
            }
            drop(asking);
            // The last question is answered, too.
            while !asker.is_finished() {
                session.copy(to, from, 4096).unwrap();
            }
            let answers = asker.join().unwrap();
            assert!(answers.len() > 10, "{firmware}: {} answers", answers.len());
            let good = answers.iter().filter(|a| a.starts_with("{\"report\"")).count();
            assert_eq!(good, answers.len(), "{firmware}: {answers:?}");
        });
        assert_eq!(session.violations(), Some(Vec::new()), "{firmware}");
        session.fini(&mut Silent).unwrap();
    }
}
