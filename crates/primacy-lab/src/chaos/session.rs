//! A whole run: all arms at once, their progress, and the table at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::chaos::arm::{ARMS, Arm};
use crate::chaos::cleanup::{KEEP, sweep, unmount_below};
use crate::chaos::disk::SmallDisk;
use crate::chaos::fault::Kind;
use crate::chaos::judge::{Verdict, judge};
use crate::chaos::processes::LOOK_INTERVAL;
use crate::chaos::report::Outcome;
use crate::chaos::run::{Plan, Progress, run as run_arm};
use crate::chaos::stalls::Watch;
use crate::chaos::{Options, report};
use primacy_testbed::network::{self, PREFIX};
use primacy_testbed::run_error::RunError;

/// The interval between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// The variable that makes a fault that cannot be run a failure, on machines that have everything.
const REQUIRE_LIVE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";
/// A rule was broken, or the coverage is insufficient.
const BROKEN: u8 = 1;
/// The run itself could not go on.
const TROUBLE: u8 = 70;
/// This user or this machine cannot inject the faults.
const NOT_RUN: u8 = 77;

/// An arm that is running.
struct Running {
    arm: Arm,
    dir: PathBuf,
    progress: Arc<Progress>,
    thread: JoinHandle<Result<(), RunError>>,
}

/// Runs all arms, and judges them.
///
/// # Errors
/// [`RunError`] if the run could not begin.
pub(crate) fn run(options: &Options) -> Result<ExitCode, RunError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(not_run("it needs root, for network namespaces, nftables and mounts; run it as root"));
    }
    if let Err(error) = network::probe() {
        return Ok(not_run(&format!("this machine has no network namespaces with nftables: {error}")));
    }
    fs::create_dir_all(&options.dir).map_err(RunError::file("make", &options.dir))?;
    let base = fs::canonicalize(&options.dir).map_err(RunError::file("use", &options.dir))?;
    for swept in sweep(&base)? {
        eprintln!("primacy-lab chaos: removed what an earlier run had left: {swept}");
    }
    let seed = options.seed.unwrap_or_else(seed_of_now);
    let primacy = fs::canonicalize(&options.primacy).map_err(RunError::file("find", &options.primacy))?;
    let dir = base.join(format!("{PREFIX}{}", std::process::id()));
    fs::create_dir(&dir).map_err(RunError::file("make", &dir))?;
    eprintln!("primacy-lab chaos: seed {seed}, {} minute(s), in {}", options.minutes, dir.display());
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(RunError::file("listen for signals of", &dir))?;
    }
    let watch = Watch::start(&dir)?;
    let running = start(options, seed, &primacy, &dir, &stop)?;
    let (verdicts, mut troubled) = finish(running, &stop, watch);
    // An interrupted run is incomplete.
    troubled |= stop.load(Ordering::Relaxed);
    let code = print(seed, &verdicts, options.json);
    let bad = matches!(report::outcome(&verdicts), Outcome::Broken | Outcome::NotMet);
    if bad || troubled {
        let again = command_line(options, seed);
        fs::write(dir.join(KEEP), format!("{again}\n")).map_err(RunError::file("write", &dir))?;
        eprintln!(
            "primacy-lab chaos: all files are kept in {}\nThe same schedule again: {again}",
            dir.display()
        );
        return Ok(if bad { code } else { ExitCode::from(TROUBLE) });
    }
    if options.keep {
        fs::write(dir.join(KEEP), "asked for\n").map_err(RunError::file("write", &dir))?;
        eprintln!("primacy-lab chaos: all files are in {}", dir.display());
    } else {
        unmount_below(&dir)?;
        fs::remove_dir_all(&dir).map_err(RunError::file("remove", &dir))?;
    }
    Ok(code)
}

/// Reports why something was not run. Returns the exit code: a third outcome, or a failure if everything is required.
fn not_run(why: &str) -> ExitCode {
    eprintln!("primacy-lab chaos: NOT RUN: {why}");
    if std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none() {
        return ExitCode::from(NOT_RUN);
    }
    eprintln!("primacy-lab chaos: that is a failure, since {REQUIRE_LIVE_VARIABLE} is set");
    ExitCode::from(BROKEN)
}

fn start(
    options: &Options,
    seed: u64,
    primacy: &Path,
    dir: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Running>, RunError> {
    let not_run = cannot(dir);
    let until = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let arms = match options.arm.is_empty() {
        true => ARMS.iter().copied().filter(|arm| arm.usual).collect(),
        false => options.arm.clone(),
    };
    let mut running = Vec::new();
    for arm in arms {
        let dir = dir.join(arm.name);
        fs::create_dir(&dir).map_err(RunError::file("make", &dir))?;
        let progress = Arc::<Progress>::default();
        let plan = Plan {
            arm,
            seed,
            dir: dir.clone(),
            primacy: primacy.to_owned(),
            not_run: not_run.clone(),
            until,
            stop: Arc::clone(stop),
            progress: Arc::clone(&progress),
        };
        let thread = std::thread::spawn(move || run_arm(plan));
        running.push(Running { arm, dir, progress, thread });
    }
    Ok(running)
}

/// Returns the faults that this machine cannot inject, among those that need special support.
fn cannot(dir: &Path) -> Vec<(Kind, String)> {
    let mut not_run = Vec::new();
    let full =
        SmallDisk::mount(&dir.join("probe"), 64).and_then(|disk| disk.fill().and_then(|()| disk.free()));
    if let Err(error) = full {
        not_run.push((Kind::FullDisk, error.to_string()));
    }
    not_run
}

/// Waits for all arms, and judges each. Returns true as well if any could not be run or judged.
fn finish(running: Vec<Running>, stop: &AtomicBool, watch: Watch) -> (Vec<Verdict>, bool) {
    let began = Instant::now();
    let mut told = Instant::now();
    while running.iter().any(|arm| !arm.thread.is_finished()) {
        std::thread::sleep(LOOK_INTERVAL);
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            let arms: Vec<String> = running.iter().map(Running::line).collect();
            eprintln!("{:>5} s   {}", began.elapsed().as_secs(), arms.join("   "));
        }
    }
    let (mut verdicts, mut troubled) = (Vec::new(), false);
    if let Err(error) = watch.end() {
        eprintln!("primacy-lab chaos: stalls of the machine cannot be told from mistakes: {error}");
        troubled = true;
    }
    if stop.load(Ordering::Relaxed) {
        eprintln!("primacy-lab chaos: it was told to end; this is what there is so far");
    }
    for arm in running {
        let name = arm.arm.name;
        let ran = arm
            .thread
            .join()
            .unwrap_or_else(|_| Err(RunError::NotWhole("the run of the arm has panicked".into())));
        if let Err(error) = ran {
            eprintln!("primacy-lab chaos: the arm {name} could not go on: {error}");
            troubled = true;
        }
        match judge(&arm.dir) {
            Ok(verdict) => verdicts.push(verdict),
            Err(error) => {
                eprintln!("primacy-lab chaos: the arm {name} cannot be judged: {error}");
                troubled = true;
            }
        }
    }
    (verdicts, troubled)
}

impl Running {
    fn line(&self) -> String {
        let Progress { steps, leaderships, writes } = &*self.progress;
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        format!("{}: {} steps, {} leaders, {} writes", self.arm.name, of(steps), of(leaderships), of(writes))
    }
}

/// Judges the directory of a run, or of one arm, again.
///
/// # Errors
/// [`RunError`] if it cannot be read.
pub(crate) fn judge_again(dir: &Path, json: bool) -> Result<ExitCode, RunError> {
    let dirs: Vec<PathBuf> = ARMS.iter().map(|arm| dir.join(arm.name)).filter(|dir| dir.is_dir()).collect();
    let dirs = if dirs.is_empty() { vec![dir.to_owned()] } else { dirs };
    let verdicts = dirs.iter().map(|dir| judge(dir)).collect::<Result<Vec<_>, _>>()?;
    let seed = verdicts.first().map_or(0, |verdict| verdict.seed);
    Ok(print(seed, &verdicts, json))
}

/// Prints the report; returns the exit code.
fn print(seed: u64, verdicts: &[Verdict], json: bool) -> ExitCode {
    if json {
        println!("{}", report::json(seed, verdicts));
    } else {
        print!("{}", report::text(seed, verdicts));
    }
    match report::outcome(verdicts) {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Broken => ExitCode::from(BROKEN),
        Outcome::NotMet => {
            eprintln!(
                "primacy-lab chaos: nothing was broken, but too little was met to say so: see NOT MET above"
            );
            ExitCode::from(BROKEN)
        }
        Outcome::NotRun => not_run("some faults, for the reasons above; nothing was broken by the others"),
    }
}

fn command_line(options: &Options, seed: u64) -> String {
    let arms: String = options.arm.iter().map(|arm| format!(" --arm {}", arm.name)).collect();
    format!("cargo xtask chaos --minutes {} --seed {seed}{arms}", options.minutes)
}

/// Draws a seed from the clock; it is printed, so that the run can be repeated.
fn seed_of_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
