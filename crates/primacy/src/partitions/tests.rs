use super::*;

fn primary(lasts: Duration) -> (Primary, Arc<Cell>, Arc<Right>, mpsc::UnboundedReceiver<Arc<Cell>>) {
    let right = Arc::new(Right::until(clock::now().after(lasts.into())));
    let cell = Arc::new(Cell::new(GroupName::new("g").unwrap(), 3, 7, Arc::clone(&right)));
    let (dropped, told) = mpsc::unbounded_channel();
    (Primary { cell: Arc::clone(&cell), dropped }, cell, right, told)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn check_fails_from_the_end_of_the_session_on_though_nothing_has_run() {
    let (past, ..) = primary(Duration::ZERO);
    let lost = past.check().unwrap_err();
    assert_eq!((lost.index, lost.end), (3, None));
    let (running, _, right, _told) = primary(LONG);
    assert_eq!(running.check(), Ok(()));
    right.revoke();
    assert!(running.check().is_err());
    right.extend(clock::now().after(LONG.into()));
    assert!(running.check().is_err(), "a session that is over is not kept alive");
}

#[test]
fn the_end_moves_only_further() {
    let (running, _, right, _told) = primary(LONG);
    let end = running.valid_until();
    right.extend(end.before(Duration::from_secs(1).into()));
    assert_eq!(running.valid_until(), end);
    right.extend(end.after(Duration::from_secs(1).into()));
    assert!(running.valid_until() > end);
}

#[tokio::test]
async fn it_ends_once_and_is_over_when_it_was_dropped() {
    let (primary, cell, _, mut told) = primary(LONG);
    assert!(cell.hand_over());
    assert!(cell.end(End::TakenBack), "the program has it");
    cell.end(End::Expired);
    assert_eq!(primary.ended().await, End::TakenBack);
    assert_eq!(primary.check().unwrap_err().end, Some(End::TakenBack));
    assert!(told.try_recv().is_err());
    cell.finish();
    assert_eq!(primary.lost().await, End::TakenBack);
    drop(primary);
    assert!(Arc::ptr_eq(&told.recv().await.unwrap(), &cell));
}

#[test]
fn what_was_wanted_back_before_the_program_had_it_is_not_handed_over() {
    let (_primary, cell, ..) = primary(LONG);
    assert!(!cell.end(End::TakenBack), "there is nothing to drain");
    assert!(!cell.hand_over());
}

#[tokio::test]
async fn everybody_who_waits_is_told() {
    let (primary, cell, ..) = primary(LONG);
    let primary = Arc::new(primary);
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let primary = Arc::clone(&primary);
            tokio::spawn(async move { primary.ended().await })
        })
        .collect();
    tokio::task::yield_now().await;
    cell.end(End::Left);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), End::Left);
    }
}
