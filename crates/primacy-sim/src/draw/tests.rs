use primacy_core::{FencingToken, NodeId, Term};

use super::*;
use crate::network::Remark;
use crate::trace::{Delivery, Level};

const MS: u64 = 1_000_000;

fn node(name: &str) -> Party {
    Party::Node(NodeId::new(name).unwrap())
}

fn at(ms: u64, what: TraceEvent) -> Entry {
    Entry { at: Moment::from_nanos(ms * MS), level: Level::Event, what }
}

fn turn(ms: u64, name: &str, turn: Turn) -> Entry {
    at(ms, TraceEvent::Node { who: node(name), turn, text: "· something".to_owned() })
}

fn leads(ms: u64, name: &str, until: u64) -> Entry {
    let until = Moment::from_nanos(until * MS);
    turn(ms, name, Turn::Leads { term: Term(1), token: Some(FencingToken(1)), until })
}

fn says(
    ms: u64,
    from: Party,
    to: Party,
    text: &str,
    arrivals: [Option<u64>; 2],
    remark: Option<Remark>,
) -> Entry {
    let arrivals = arrivals.map(|ms| ms.map(|ms| Moment::from_nanos(ms * MS)));
    let (kind, text, delivery) = ("Vote", text.to_owned(), Delivery { arrivals, remark });
    at(ms, TraceEvent::Says { from, to, kind, text, delivery })
}

fn whole() -> Frame {
    Frame::whole("A story".to_owned(), String::new())
}

/// Returns the elements of this class below the legend, without the column headings.
fn elements(picture: &str, element: &str, class: &str) -> Vec<String> {
    let (_, body) = picture.split_once("</g>").unwrap();
    let of_class = format!("class=\"{class}\"");
    let lines =
        body.lines().filter(|line| line.starts_with(&format!("<{element} ")) && line.contains(&of_class));
    lines.map(str::to_owned).collect()
}

fn number(element: &str, name: &str) -> i64 {
    let (_, rest) = element.split_once(&format!(" {name}=\"")).unwrap();
    rest.split('"').next().unwrap().parse().unwrap()
}

/// True if the tags are closed in the order in which they were opened, as a browser requires.
fn is_well_formed(picture: &str) -> bool {
    let mut open = Vec::new();
    for tag in picture.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { return false };
        let well = !text.contains('&') || text.split('&').skip(1).all(|entity| entity.contains(';'));
        if !well {
            return false;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default().to_owned();
        if let Some(closed) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(closed) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

#[test]
fn a_picture_is_well_formed_and_needs_nothing_else() {
    let evil = "Vote <script>alert('1')</script> & \"more\"\u{7}";
    let entries = [
        turn(0, "a", Turn::Begins),
        says(1, node("a"), node("b"), evil, [Some(2), None], None),
        at(3, TraceEvent::World { text: evil.to_owned() }),
    ];
    let picture = svg(&entries, &Frame::whole(evil.to_owned(), evil.to_owned()));
    assert!(is_well_formed(&picture), "{picture}");
    assert!(!is_well_formed(&picture.replace("</g>", "")), "the check sees a mistake");
    for foreign in ["<script", "@import", "<image", "href", "url(h"] {
        assert!(!picture.contains(foreign), "{foreign}");
    }
    assert_eq!(picture.matches("://").count(), 1, "the name space, and no other address");
    assert!(is_well_formed(&svg(&[], &whole())), "of nothing, too");
}

#[test]
fn a_message_goes_from_where_it_was_sent_to_where_it_arrives() {
    let (a, b) = (node("a"), node("b"));
    let entries = [
        turn(0, "a", Turn::Begins),
        turn(0, "b", Turn::Begins),
        says(10, a, b, "one", [Some(12), None], None),
        says(20, a, b, "lost", [None, None], Some(Remark::Lost)),
        says(30, b, a, "twice", [Some(31), Some(35)], Some(Remark::Doubled)),
        says(40, a, b, "late", [Some(60), None], Some(Remark::Late(primacy_core::Duration::from_millis(19)))),
        turn(70, "a", Turn::Ends),
    ];
    let picture = svg(&entries, &whole());
    let [one, first] = &elements(&picture, "line", "message")[..] else { panic!("{picture}") };
    assert!(number(one, "x1") < number(one, "x2") && number(one, "y1") < number(one, "y2"), "{one}");
    assert!(number(first, "x1") > number(first, "x2"), "the first of two, to the left: {first}");
    assert_eq!(elements(&picture, "line", "again").len(), 1);
    let [lost] = &elements(&picture, "line", "lost")[..] else { panic!("{picture}") };
    assert!(number(lost, "x2") < number(one, "x2"), "it does not arrive: {lost}");
    assert_eq!(elements(&picture, "path", "cross").len(), 1);
    let [late] = &elements(&picture, "line", "late")[..] else { panic!("{picture}") };
    assert!(number(late, "y2") - number(late, "y1") > number(one, "y2") - number(one, "y1"), "{late}");
}

#[test]
fn a_lead_that_runs_out_unnoticed_looks_otherwise_from_then_on() {
    let mut entries = vec![
        turn(0, "a", Turn::Begins),
        turn(0, "b", Turn::Begins),
        leads(10, "a", 50),
        turn(90, "b", Turn::Names(None)),
        turn(95, "a", Turn::Deposed),
    ];
    let bands = |entries: &[Entry]| {
        let picture = svg(entries, &whole());
        (elements(&picture, "rect", "leading"), elements(&picture, "rect", "lapsed"))
    };
    let (leading, lapsed) = bands(&entries);
    assert_eq!((leading.len(), lapsed.len()), (1, 1));
    let end = number(&leading[0], "y") + number(&leading[0], "height");
    assert_eq!(end, number(&lapsed[0], "y"));
    entries.insert(3, turn(40, "a", Turn::Renewed { until: Moment::from_nanos(100 * MS) }));
    let (leading, lapsed) = bands(&entries);
    assert_eq!((leading.len(), lapsed.len()), (1, 0), "it was renewed in time");
}

#[test]
fn who_stands_is_paused_or_down_is_seen() {
    let entries = [
        turn(0, "a", Turn::Begins),
        turn(10, "a", Turn::Campaigns),
        turn(20, "a", Turn::Paused),
        turn(30, "a", Turn::Resumed),
        turn(40, "a", Turn::StopsCampaigning),
        turn(50, "a", Turn::Ends),
        turn(60, "a", Turn::Begins),
    ];
    let picture = svg(&entries, &whole());
    let count = |class| elements(&picture, "rect", class).len();
    assert_eq!((count("campaigning"), count("paused"), count("follower")), (3, 1, 3));
    let [absent] = &elements(&picture, "line", "absent")[..] else { panic!("{picture}") };
    assert!(number(absent, "y2") > number(absent, "y1"), "what is seen where there is no band");
}

#[test]
fn long_stretches_are_cut_short_and_say_so() {
    let apart = |ms: u64| svg(&[turn(0, "a", Turn::Begins), turn(ms, "a", Turn::Ends)], &whole());
    let height = |picture: &str| number(picture.lines().next().unwrap(), "height");
    assert!(!apart(99).contains("⋮") && apart(100).contains("⋮ 100ms"));
    assert!(apart(3_600_000).contains("⋮ 3600s"));
    assert_eq!(height(&apart(200)), height(&apart(3_600_000)));
    assert!(height(&apart(1)) < height(&apart(90)));
}

#[test]
fn a_frame_shows_a_part_and_knows_what_came_before() {
    let (a, b) = (node("a"), node("b"));
    let entries = [
        turn(0, "a", Turn::Begins),
        turn(0, "b", Turn::Begins),
        leads(10, "a", 10_000),
        says(20, a, b, "under way", [Some(150), None], None),
        turn(100, "b", Turn::Names(None)),
        turn(200, "b", Turn::Campaigns),
        turn(210, "b", Turn::Names(None)),
        turn(300, "b", Turn::Ends),
    ];
    let frame = Frame { from: Moment::from_nanos(100 * MS), until: Moment::from_nanos(250 * MS), ..whole() };
    let picture = svg(&entries, &frame);
    assert_eq!(elements(&picture, "line", "message").len(), 1, "what was under way arrives");
    assert_eq!(elements(&picture, "rect", "leading").len(), 1, "who led leads");
    assert_eq!(elements(&picture, "path", "crash").len(), 0, "what comes later is not shown");
    assert_eq!(picture.matches("· something").count(), 2 * 2, "two marks with their words");
}

#[test]
fn of_too_many_lines_the_last_are_drawn_and_the_others_counted() {
    let many = LINES_MAX as u64 + 7;
    let entries: Vec<Entry> =
        (0..many).map(|ms| at(ms, TraceEvent::World { text: format!("line {ms} ends") })).collect();
    let picture = svg(&entries, &whole());
    assert!(picture.contains("7 earlier lines are not drawn"));
    assert!(!picture.contains("line 6 ends") && picture.contains("line 7 ends"));
    assert!(!svg(&entries[7..], &whole()).contains("not drawn"));
}

#[test]
fn a_broken_invariant_and_a_refused_write_are_seen() {
    let who = NodeId::new("a").unwrap();
    let write = |accepted| {
        let token = Some(FencingToken(1));
        TraceEvent::Write { node: who, token, accepted, text: "resource: a write".to_owned() }
    };
    let entries = [
        turn(0, "a", Turn::Begins),
        at(1, write(true)),
        at(2, write(false)),
        at(3, TraceEvent::Breach { invariant: "I3", text: "two lead".to_owned() }),
    ];
    let picture = svg(&entries, &whole());
    assert_eq!(elements(&picture, "circle", "accepted").len(), 1);
    assert_eq!(elements(&picture, "path", "crash").len(), 1);
    assert_eq!(elements(&picture, "rect", "breach").len(), 1);
    assert!(picture.contains("!! I3 is broken: two lead"));
}
