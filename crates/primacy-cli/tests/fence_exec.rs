//! The promises of `primacy fence exec`: a stale command is not run, no two commands run at a time, and none outlives
//! its lock.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use primacy::fence::{DurableFence, FencingToken, HeldFence};
use primacy_testbed::{Place, stderr, stdout, strings, wait_until};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};

/// `primacy fence exec` of a command under this token.
fn exec(token: &str, options: &[&str], command: &[String]) -> Vec<String> {
    let mut args = strings(&["fence", "exec", "--state", "e.fence", "--election", "e", "--token", token]);
    args.extend(strings(options));
    args.push("--".to_owned());
    args.extend_from_slice(command);
    args
}

/// The same of a shell script.
fn script(token: &str, options: &[&str], script: &str) -> Vec<String> {
    exec(token, options, &strings(&["sh", "-c", script]))
}

fn run(place: &Place, token: &str, text: &str) -> Output {
    place.output(&script(token, &[], text))
}

fn start(place: &Place, args: &[String]) -> Child {
    place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_stale_command_is_not_run_and_the_others_exit_codes_are_passed_on() {
    let place = Place::new("exec-stale");
    for (token, text, code) in
        [("7", "exit 3", 3), ("7", "exit 0", 0), ("9", "kill -9 $$", 137), ("8", "touch ran", 76)]
    {
        let output = run(&place, token, text);
        assert_eq!(output.status.code(), Some(code), "{token}: {}", stderr(&output));
    }
    let late = run(&place, "8", "touch ran");
    assert!(stderr(&late).contains("the token 8 is stale: a leader with token 9"), "{}", stderr(&late));
    assert!(!place.path("ran").exists());
    place.wait_until_empty();
}

#[test]
fn the_token_comes_from_the_environment_where_none_is_given() {
    let place = Place::new("exec-token");
    let show = strings(&[
        "fence",
        "exec",
        "--state",
        "e.fence",
        "--",
        "sh",
        "-c",
        "echo $PRIMACY_ELECTION $PRIMACY_TOKEN",
    ]);
    let in_a_job =
        place.command(&show).env("PRIMACY_TOKEN", "41").env("PRIMACY_ELECTION", "jobs").output().unwrap();
    assert_eq!(stdout(&in_a_job), "jobs 41\n", "{}", stderr(&in_a_job));
    let named = script("env:MINE", &[], "echo $PRIMACY_ELECTION $PRIMACY_TOKEN");
    let output = place.command(&named).env("MINE", "42").output().unwrap();
    assert_eq!(output.status.code(), Some(74), "the file is that of `jobs`: {}", stderr(&output));
    fs::remove_file(place.path("e.fence")).unwrap();
    let output = place.command(&named).env("MINE", "42").output().unwrap();
    assert_eq!(stdout(&output), "e 42\n", "{}", stderr(&output));
}

#[test]
fn a_job_of_run_needs_to_name_neither_its_election_nor_its_token() {
    let place = Place::new("exec-job");
    let job = format!(
        "exec {} fence exec --state e.fence -- sh -c 'echo $PRIMACY_TOKEN'",
        primacy_testbed::primacy()
    );
    let run = strings(&["run", "--election", "nightly", "--", "sh", "-c", &job]);
    let tokens: Vec<u64> = (0..2).map(|_| stdout(&place.output(&run)).trim().parse().unwrap()).collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    let late = strings(&["fence", "exec", "--state", "e.fence", "--election", "nightly", "--token"]);
    let late = [late, vec![tokens[0].to_string()], strings(&["--", "true"])].concat();
    assert_eq!(place.output(&late).status.code(), Some(76));
}

/// The outer one waits for the end of all that its command has started, and the inner one would wait for the outer one.
#[test]
fn a_command_within_one_on_the_same_file_is_told_so_and_does_not_wait_for_itself() {
    let place = Place::new("exec-nested");
    let inner = |file: &str| {
        format!(
            "{} fence exec --state {file} --election e --token 9 -- touch ran-{file}",
            primacy_testbed::primacy()
        )
    };
    let nested = run(&place, "9", &inner("e.fence"));
    assert_eq!(nested.status.code(), Some(75), "{}", stderr(&nested));
    assert!(stderr(&nested).contains("this would wait for itself"), "{}", stderr(&nested));
    assert!(!place.path("ran-e.fence").exists());
    // Also where the descriptor is not inherited; and another file is another matter.
    let closed = run(&place, "9", &format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; {}", inner("e.fence")));
    assert_eq!(closed.status.code(), Some(75), "{}", stderr(&closed));
    let other = run(&place, "9", &inner("other.fence"));
    assert!(other.status.success() && place.path("ran-other.fence").exists(), "{}", stderr(&other));
}

#[test]
fn what_is_wrong_is_said_before_anything_is_run_or_remembered() {
    let place = Place::new("exec-wrong");
    let code = |args: &[String]| place.output(args).status.code();
    for token in ["", "x", "-1", "+1", "1.5", "18446744073709551616", "env:NO_SUCH_VARIABLE"] {
        assert_eq!(code(&script(token, &[], "touch ran")), Some(64), "{token:?}");
    }
    let program = |name: &str| {
        strings(&["fence", "exec", "--state", "e.fence", "--election", "e", "--token", "9", "--", name])
    };
    assert_eq!(code(&program("no-such-command-at-all")), Some(127));
    assert_eq!(code(&program("/etc/passwd")), Some(126));
    assert_eq!(code(&script("9", &["--existing"], "touch ran")), Some(74));
    assert!(!place.path("e.fence").exists());
    fs::write(place.path("e.fence"), "something else\n").unwrap();
    assert_eq!(code(&script("9", &[], "touch ran")), Some(74));
    assert_eq!(fs::read_to_string(place.path("e.fence")).unwrap(), "something else\n");
    assert!(!place.path("ran").exists());
}

#[test]
fn no_two_commands_run_at_a_time_and_their_tokens_never_go_down() {
    let place = Place::new("exec-one");
    let text = "mkdir busy || exit 99; echo $PRIMACY_TOKEN >> log; sleep 0.02; rmdir busy";
    let tokens = ["3", "1", "4", "1", "5", "9", "2", "6", "5", "3"];
    let children: Vec<Child> = tokens.iter().map(|token| start(&place, &script(token, &[], text))).collect();
    let ended: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    for output in &ended {
        assert!(matches!(output.status.code(), Some(0 | 76)), "{:?} {}", output.status, stderr(output));
    }
    let log = fs::read_to_string(place.path("log")).unwrap();
    let ran: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(ran.is_sorted() && ran.last() == Some(&9), "{ran:?}");
    assert_eq!(ran.len(), ended.iter().filter(|output| output.status.success()).count());
}

#[test]
fn one_that_became_stale_while_it_waited_is_refused_when_its_turn_comes() {
    let place = Place::new("exec-turn");
    let held = HeldFence::open(&place.path("e.fence"), "e").unwrap();
    held.admit(FencingToken(6)).unwrap();
    let mut waiting = start(&place, &script("7", &[], "touch ran"));
    wait_until("it waits for the lock", || {
        let open = fs::read_dir(format!("/proc/{}/fd", waiting.id())).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|file| file.ends_with("e.fence"))
    });
    assert!(waiting.try_wait().unwrap().is_none());
    held.admit(FencingToken(9)).unwrap();
    drop(held);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
    assert!(!place.path("ran").exists());
}

#[test]
fn waiting_has_an_end_where_one_is_asked_for() {
    let place = Place::new("exec-wait");
    let mut running = start(&place, &script("7", &[], "touch ready; exec sleep 1000"));
    wait_until("the command runs", || place.path("ready").exists());
    let no_wait = place.output(&script("8", &["--no-wait"], "touch ran"));
    assert_eq!(no_wait.status.code(), Some(75), "{}", stderr(&no_wait));
    let began = Instant::now();
    let wait = place.output(&script("8", &["--wait", "300ms"], "touch ran"));
    assert_eq!(wait.status.code(), Some(75), "{}", stderr(&wait));
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(!place.path("ran").exists());
    // Nor is the newer token remembered, which has not been here: it may still be that the older one goes on.
    let newer = start(&place, &script("8", &["--wait", "60s"], "touch ran"));
    signal(&running, Signal::TERM);
    assert_eq!(running.wait().unwrap().code(), Some(143));
    assert!(newer.wait_with_output().unwrap().status.success());
    assert!(place.path("ran").exists());
}

#[test]
fn signals_reach_the_command() {
    let place = Place::new("exec-signals");
    let text = "trap 'echo usr1 >> log' USR1; trap 'echo int >> log' INT; trap 'exit 5' TERM; touch ready; \
                while :; do sleep 0.01; done";
    let mut child = start(&place, &script("7", &[], text));
    wait_until("the command runs", || place.path("ready").exists());
    for (name, number) in [("usr1", Signal::USR1), ("int", Signal::INT)] {
        signal(&child, number);
        wait_until(name, || {
            fs::read_to_string(place.path("log")).is_ok_and(|log| log.ends_with(&format!("{name}\n")))
        });
    }
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn what_the_command_leaves_behind_is_ended_before_the_lock_is_free() {
    let place = Place::new("exec-daemon");
    // It has left its group and its session, and closed all that it inherited; of descriptors from 10 on, only bash can.
    fs::write(
        place.path("daemon"),
        "for fd in /proc/$$/fd/*; do fd=${fd##*/}; ((fd > 2 && fd != 255)) && eval \"exec $fd>&-\"; done\n\
         readlink /proc/$$/fd/* | grep --quiet 'e\\.fence$' && exec mv begun locked\n\
         mv begun unlocked; exec sleep 1000\n",
    )
    .unwrap();
    let text = "readlink /proc/$$/fd/* | grep --quiet 'e\\.fence$' || exit 98; touch begun; setsid bash daemon & \
                while test -e begun; do sleep 0.01; done; test -e unlocked";
    let output = run(&place, "7", text);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.alive().is_empty());
}

#[test]
fn a_killed_exec_ends_its_command_and_the_lock_lasts_as_long_as_what_is_left() {
    let place = Place::new("exec-killed");
    let text = "setsid sleep 1000 & echo $! > daemon; echo $$ > main.new; mv main.new main; exec sleep 1000";
    let mut child = start(&place, &script("7", &[], text));
    wait_until("the command runs", || place.path("main").exists());
    let pid = |file: &str| fs::read_to_string(place.path(file)).unwrap().trim().parse::<i32>().unwrap();
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    wait_until("only the daemon is left", || place.alive().len() == 1);
    assert_eq!(place.alive()[0].pid, pid("daemon"));
    let newer = place.output(&script("8", &["--no-wait"], "touch ran"));
    assert_eq!(newer.status.code(), Some(75), "{}", stderr(&newer));
    place.alive()[0].kill();
    let newer = run(&place, "8", "touch ran");
    assert!(newer.status.success(), "{}", stderr(&newer));
    assert!(place.path("ran").exists());
}

/// A command goes on as another user where that can be tried, and does with the inherited file what it can.
#[test]
fn a_command_can_neither_write_to_the_fence_nor_end_the_lock_of_fence_exec() {
    let place = Place::new("exec-inherited");
    fs::create_dir(place.path("open")).unwrap();
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let text = "for fd in /proc/$$/fd/*; do case $(readlink $fd) in *e.fence) n=${fd##*/};; esac; done\n\
                grep '^flags:.*0$' /proc/$$/fdinfo/$n || exit 98\n\
                echo x 1>&$n && exit 97\n\
                flock --unlock $n || exit 96\n\
                touch open/unlocked; while ! test -e open/go; do sleep 0.01; done";
    let mut lines = vec![strings(&["bash", "-c", text])];
    if rustix::process::geteuid().is_root() {
        let other = strings(&["setpriv", "--reuid", "60001", "--regid", "60001", "--clear-groups"]);
        lines.push([other, lines[0].clone()].concat());
    } else {
        primacy_conformance::not_run("a command that goes on as another user takes root");
    }
    for (line, token) in lines.into_iter().zip(["7", "9"]) {
        let mut child = start(&place, &exec(token, &[], &line));
        wait_until("the inherited file is unlocked", || {
            place.path("open/unlocked").exists() || child.try_wait().unwrap().is_some()
        });
        let second = place.output(&script("12", &["--no-wait"], "true"));
        fs::write(place.path("open/go"), "").unwrap();
        let first = child.wait_with_output().unwrap();
        assert!(first.status.success(), "{:?} {}", first.status, stderr(&first));
        assert_eq!(second.status.code(), Some(75), "beside the first: {}", stderr(&second));
        let fence = DurableFence::open(&place.path("e.fence"), "e").unwrap();
        assert_eq!(fence.highest().unwrap().to_string(), token);
        for file in ["open/go", "open/unlocked"] {
            fs::remove_file(place.path(file)).unwrap();
        }
    }
}

/// By `SCM_RIGHTS`, to this process, which is no descendant.
#[test]
fn a_descriptor_that_the_command_hands_on_does_not_keep_the_fence_held() {
    let place = Place::new("exec-handed-on");
    let listener = UnixListener::bind(place.path("socket")).unwrap();
    let hand_on = "import os, socket\n\
                   there = [int(n) for n in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{n}')]\n\
                   fence = [n for n in there if os.readlink(f'/proc/self/fd/{n}').endswith('e.fence')]\n\
                   to = socket.socket(socket.AF_UNIX); to.connect('socket')\n\
                   socket.send_fds(to, [b'x'], fence[:1])";
    let child = start(&place, &exec("7", &[], &strings(&["python3", "-c", hand_on])));
    let (stream, _) = listener.accept().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut handed = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut handed, RecvFlags::empty()).unwrap();
    let Some(RecvAncillaryMessage::ScmRights(mut descriptors)) = handed.drain().next() else {
        panic!("no descriptor")
    };
    let _kept = descriptors.next().unwrap();
    let first = child.wait_with_output().unwrap();
    assert!(first.status.success(), "{}", stderr(&first));
    let second = place.output(&script("8", &["--no-wait"], "true"));
    assert!(second.status.success(), "{}", stderr(&second));
}

#[test]
fn a_program_that_uses_the_same_fence_waits_for_the_command() {
    let place = Place::new("exec-library");
    let mut child =
        start(&place, &script("7", &[], "touch ready; while ! test -e go; do sleep 0.01; done; touch done"));
    wait_until("the command runs", || place.path("ready").exists());
    let file = place.path("e.fence");
    let admitting = std::thread::spawn(move || {
        let fence = DurableFence::open(&file, "e").unwrap();
        fence.admit(FencingToken(8)).unwrap();
    });
    fs::write(place.path("go"), "").unwrap();
    admitting.join().unwrap();
    assert!(place.path("done").exists(), "it was admitted while the command was running");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_command_whose_work_others_do_is_warned_of() {
    let place = Place::new("exec-delegated");
    fs::create_dir(place.path("bin")).unwrap();
    fs::copy("/bin/true", place.path("bin/docker")).unwrap();
    let docker = place.text("bin/docker");
    let run = |command: &[&str]| {
        let args = ["fence", "exec", "--state", "e.fence", "--election", "e", "--token", "1", "--"];
        let output = place.output(&[&args, command].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    let told = run(&[&docker, "run", "image"]);
    assert!(told.contains("warning: docker has its work done by the Docker daemon"), "{told}");
    assert!(told.contains("the lock is let go"), "{told}");
    assert_eq!(run(&["true"]), "");
}
