//! Fuzz tests of the control socket: the worst outcome of any request is a refusal of one line, and of any answer an
//! error.

use tokio::runtime::Builder;

use crate::control::message::Request;

use super::*;

#[test]
fn control_request() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    primacy_fuzz::hold("control_request", move |bytes| {
        let mut reading = BufReader::new(bytes.take(REQUEST_MAX));
        let asked = runtime.block_on(request(&mut reading)).unwrap();
        said(bytes, asked);
        answered(bytes);
    });
}

fn said(bytes: &[u8], asked: Option<Result<NodeVerb, ControlError>>) {
    let limit = usize::try_from(REQUEST_MAX).unwrap();
    let heard = &bytes[..bytes.len().min(limit)];
    let line = heard.split_inclusive(|&byte| byte == b'\n').next().filter(|line| line.ends_with(b"\n"));
    match (asked, line) {
        (None, _) => assert!(bytes.is_empty()),
        (Some(Ok(verb)), Some(heard)) => {
            assert_eq!(message::parse(heard), Ok(verb.clone()));
            let again = serde_json::to_vec(&Request { version: VERSION, verb: verb.clone() }).unwrap();
            assert_eq!(message::parse(&again), Ok(verb.clone()));
            // A wrong name is refused before the node's state is used.
            if let NodeVerb::Transfer { to: name } | NodeVerb::Readmit { node: name } = verb
                && let Err(refused) = parse_node(&name)
            {
                refusal(refused);
            }
        }
        (Some(Ok(verb)), None) => panic!("{verb:?} was asked without a line"),
        (Some(Err(refused)), _) => {
            assert!([Kind::Malformed, Kind::Version].contains(&refused.kind), "{refused:?}");
            refusal(refused);
        }
    }
}

/// A refusal is one line, which the client can read, and not much longer than its request.
fn refusal(refused: ControlError) {
    const LENGTH_MAX: usize = 64 * 1024;
    let line = line(Answer::Refused(refused.clone()));
    assert!(line.len() <= LENGTH_MAX && line.iter().filter(|&&byte| byte == b'\n').count() == 1);
    let Ok(Reply { version: VERSION, answer: Answer::Refused(read) }) = serde_json::from_slice(&line) else {
        panic!("{}", String::from_utf8_lossy(&line))
    };
    assert_eq!(read, refused);
}

/// Every answer that can be read is written as the same bytes.
fn answered(bytes: &[u8]) {
    let Ok(reply) = serde_json::from_slice::<Reply>(bytes) else { return };
    let written = serde_json::to_vec(&reply).unwrap();
    let again: Reply = serde_json::from_slice(&written).unwrap();
    assert_eq!(serde_json::to_vec(&again).unwrap(), written);
}
