//! Measurements of the assumptions behind the election by seniority, with drawings.
//!
//! `seniority heartbeats FILE.svg`: the number of messages that n members send in an interval, from all to
//! all and to k neighbours on the ring, counted in the simulator.
//! `seniority detectors FILE.svg`: how often each detector wrongly suspects a live node, and how long it
//! takes to find a dead one, when packets may take so much longer than usual.
//!
//! It prints a table and writes a drawing. The numbers follow from the seeds and are the same on every machine.

use std::fmt::Write as _;
use std::process::ExitCode;

use primacy_core::detector::{Detection, Detector};
use primacy_core::rng::Rng;
use primacy_core::{Duration, Instant, NodeId};
use primacy_sim::algorithm::Settings as _;
use primacy_sim::elections::seniority::Seniority;
use primacy_sim::process_slot::ProcessSlot;
use primacy_sim::trace::Trace;
use primacy_sim::world::{Conditions, World};

/// The sizes of clusters that are measured.
const SIZES: [usize; 7] = [3, 10, 30, 100, 200, 500, 1_000];

/// With heartbeats from all to all, a larger cluster takes minutes to simulate and shows nothing new.
const ALL_TO_ALL_MAX: usize = 200;

/// A line of a drawing: its name, and its points.
type Line = (String, Vec<(f64, f64)>);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, file] = arguments.as_slice() else { return fail("say what to measure, and where to draw it") };
    let drawn = match what.as_str() {
        "heartbeats" => heartbeats(),
        "detectors" => detectors(),
        _ => return fail("there are heartbeats and detectors"),
    };
    match std::fs::write(file, drawn) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{file}: {error}")),
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

// ── heartbeats ──────────────────────────────────────────────────────────────────────────────────────────────────

fn heartbeats() -> String {
    println!("| members | to all | k = 1 | k = 3 | k = 9 |\n|---|---|---|---|---|");
    let ways: [(&str, Option<u32>); 4] =
        [("to all", None), ("k = 1", Some(1)), ("k = 3", Some(3)), ("k = 9", Some(9))];
    let mut lines: Vec<Line> = ways.iter().map(|(name, _)| ((*name).to_owned(), Vec::new())).collect();
    for members in SIZES {
        let mut row = format!("| {members} |");
        for ((_, neighbours), line) in ways.iter().zip(&mut lines) {
            if neighbours.is_none() && members > ALL_TO_ALL_MAX {
                row.push_str(" – |");
                continue;
            }
            let counted = in_an_interval(members, *neighbours);
            let _ = write!(row, " {counted} |");
            line.1.push((number(members), number(counted)));
        }
        println!("{row}");
    }
    plot("Messages in a heartbeat interval", "members", "messages", &lines)
}

/// Returns the number of heartbeats handled in an interval, once all have joined and nothing happens.
fn in_an_interval(members: usize, neighbours: Option<u32>) -> usize {
    let names: Vec<NodeId> =
        (0..members).map(|place| NodeId::new(&format!("n{place:04}")).expect("a name")).collect();
    let mut world = World::<Seniority>::new(&names, Conditions::default(), Trace::keeping(&[]), 1);
    let slots: Vec<ProcessSlot> = world.slots().collect();
    for &slot in &slots {
        let settings = &mut world.node_mut(slot).settings;
        settings.neighbours = neighbours;
        // A node that has found none of the first views waits for the next one; no node may be taken for dead
        // meanwhile.
        settings.set("miss_count", "40").expect("a count");
    }
    for &slot in &slots {
        world.start(slot);
    }
    let interval = world.node(ProcessSlot(0)).settings.heartbeat_interval;
    let has_all = |world: &World<Seniority>| {
        let view = |slot| {
            world.process(slot).and_then(|process| process.view.as_ref()).map(|view| view.members().len())
        };
        world.slots().all(|slot| view(slot) == Some(members))
    };
    while !has_all(&world) {
        let next = world.now().after(interval);
        world.run_until(next);
    }
    // The messages of joining are over, and probes have no node to look for.
    let calm = world.now().after(interval.times(8));
    world.run_until(calm);
    let intervals = 4;
    let before = world.counters.of("heartbeat");
    let end = world.now().after(interval.times(intervals));
    world.run_until(end);
    usize::try_from((world.counters.of("heartbeat") - before) / intervals).expect("a count")
}

// ── detectors ───────────────────────────────────────────────────────────────────────────────────────────────────

/// The number of heartbeats behind each point.
const BEATS: u64 = 200_000;

fn detectors() -> String {
    let interval = Duration::from_millis(250);
    let millis = Duration::from_millis;
    let kinds = [
        ("2 missed", Detection::Missed { count: 2 }),
        ("4 missed", Detection::Missed { count: 4 }),
        ("deadline 2 s", Detection::Deadline { timeout: millis(2_000) }),
        (
            "phi 8",
            Detection::PhiAccrual {
                threshold_tenths: 80,
                acceptable_pause: Duration::ZERO,
                deviation_min: millis(25),
            },
        ),
        (
            "phi 8, pause 250 ms",
            Detection::PhiAccrual {
                threshold_tenths: 80,
                acceptable_pause: interval,
                deviation_min: millis(25),
            },
        ),
    ];
    println!(
        "| detector | jitter | wrong suspicions per 1,000,000 heartbeats | detection time |\n|---|---|---|---|"
    );
    let mut lines: Vec<Line> = Vec::new();
    for (name, detection) in kinds {
        let mut line = (name.to_owned(), Vec::new());
        for jitter in [0, 50, 100, 200, 400, 800] {
            let (wrong, found) = measure(detection, interval, millis(jitter));
            println!("| {name} | {jitter} ms | {wrong} | {found} |");
            line.1.push((
                number(usize::try_from(wrong).expect("a count") + 1),
                number(usize::try_from(found.as_millis()).expect("a time")),
            ));
        }
        lines.push(line);
    }
    plot(
        "Detectors under jitter of 0 to 800 ms",
        "wrong suspicions per 1,000,000 heartbeats, and one",
        "detection time, ms",
        &lines,
    )
}

/// Returns the number of false suspicions in a million heartbeats, 2% of which are lost, and the mean time to
/// detect the death of a node that was heard normally before.
fn measure(detection: Detection, interval: Duration, jitter: Duration) -> (u64, Duration) {
    let mut rng = Rng::new(7);
    let mut detector: Detector = detection.begin(interval, Instant::default());
    let (mut wrong, mut sum) = (0, 0_u64);
    let mut latest = Instant::default();
    for beat in 1..=BEATS {
        let sent = Instant::default().after(interval.times(beat));
        // A node that dies right after sending this heartbeat is detected at the deadline in force then.
        sum += detector.deadline().since(sent.before(interval)).as_millis();
        let arrives = sent.after(rng.duration_up_to(jitter));
        if rng.up_to(99) < 2 || arrives < latest {
            continue; // Lost, or overtaken by a later one, which says as much.
        }
        wrong += u64::from(detector.suspects(arrives));
        latest = arrives;
        detector.heard(arrives);
    }
    (wrong * 1_000_000 / BEATS, Duration::from_millis(sum / BEATS))
}

// ── drawing ─────────────────────────────────────────────────────────────────────────────────────────────────────

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 60.0;
const COLOURS: [&str; 5] = ["#1b6ca8", "#c0392b", "#27823c", "#8e44ad", "#b7791f"];

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("not that many"))
}

/// Both axes are logarithmic.
fn plot(title: &str, x_name: &str, y_name: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let span = |of: fn(&(f64, f64)) -> f64| {
        let logs = || points().map(of).map(f64::log10);
        (logs().fold(f64::INFINITY, f64::min).floor(), logs().fold(f64::NEG_INFINITY, f64::max).ceil())
    };
    let ((x_min, x_max), (y_min, y_max)) = (span(|point| point.0), span(|point| point.1));
    let across = |x: f64| MARGIN + (x.log10() - x_min) / (x_max - x_min).max(1.0) * (WIDTH - 2.0 * MARGIN);
    let down =
        |y: f64| HEIGHT - MARGIN - (y.log10() - y_min) / (y_max - y_min).max(1.0) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_name}</text>",
        WIDTH / 2.0,
        HEIGHT - 14.0
    );
    let _ = writeln!(svg, "<text x=\"{MARGIN}\" y=\"44\">{y_name}</text>");
    let decades = |min: f64, max: f64| {
        (0..=12_u8).map(move |place| min + f64::from(place)).take_while(move |&log| log <= max)
    };
    for log in decades(x_min, x_max) {
        let x = across(10_f64.powf(log));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
            HEIGHT - MARGIN
        );
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - MARGIN + 16.0,
            10_f64.powf(log)
        );
    }
    for log in decades(y_min, y_max) {
        let y = down(10_f64.powf(log));
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
            WIDTH - MARGIN
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN - 6.0,
            y + 4.0,
            10_f64.powf(log)
        );
    }
    draw_lines(&mut svg, lines, |&(x, y)| (across(x), down(y)));
    svg.push_str("</svg>\n");
    svg
}

fn draw_lines(svg: &mut String, lines: &[Line], to_page: impl Fn(&(f64, f64)) -> (f64, f64)) {
    for (place, ((name, points), colour)) in lines.iter().zip(COLOURS).enumerate() {
        let path: Vec<String> = points.iter().map(&to_page).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for point in &path {
            let (x, y) = point.split_once(',').expect("two numbers");
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let y = MARGIN + 18.0 * number(place);
        let _ =
            writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{name}</text>", MARGIN + 14.0);
    }
}
