//! The command `primacy`.

mod boot_clock;
mod exit;
mod fake;
mod guardian;
mod leftovers;
mod pauses;
mod process_tree;
mod readable;
mod report;
mod signals;
mod supervisor;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(verb) if verb == "guardian" => guardian::main(args),
        _ => thin(std::env::args_os().skip(1).collect()),
    }
}

fn thin(args: Vec<std::ffi::OsString>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lease = std::time::Duration::from_millis(1000);
        let elector = fake::Elector::connect("/tmp/fake.lock", lease);
        let node = format!("n{}", std::process::id());
        let mark = leftovers::NodeMark::new("e", &node, b"x");
        let reporter = report::Reporter::new(true, &node).unwrap();
        let left = leftovers::end(&mark, std::time::Duration::from_secs(1));
        eprintln!("{left:?}");
        let settings = supervisor::Settings {
            duty: guardian::message::Duty {
                supervisor: i32::try_from(std::process::id()).unwrap(),
                election: "e".into(),
                node,
                mark: mark.of_this_process(),
                drain: 250_000_000,
                kill_margin: 100_000_000,
                on_elected: std::env::var("ON_ELECTED").ok(),
                on_deposed: std::env::var("ON_DEPOSED").ok(),
                witness: None,
            },
            job: guardian::job::Program { file: args[0].clone(), args },
            wait: None,
            restart: std::env::var("RESTART").is_ok(),
        };
        let margin = primacy_core::time::Duration::from_millis(50);
        tokio::spawn(pauses::watch(margin, lease.into(), reporter.clone()));
        let r = supervisor::Supervisor::new(elector, settings, reporter.clone()).unwrap().run().await;
        reporter.finish();
        match r {
            Ok(e) => e.into(),
            Err(f) => {
                eprintln!("{}", f.message);
                f.exit.into()
            }
        }
    })
}
