use super::*;

fn user(name: &str) -> UserId {
    name.parse().unwrap()
}

fn here(name: &str) -> Truth {
    Truth { user: user(name), here: true, seen: true, fresh: true }
}

#[tokio::test]
async fn who_comes_back_while_their_leave_is_written_waits_for_the_write_after_it() {
    let book = Book::default();
    book.mark([user("a")]);
    let came = book.take_marked(9, |_| true);
    book.settle(came, vec![Ok(vec![])]);
    book.mark([user("a")]);
    let left = book.take_marked(9, |_| false);
    let (answer, mut told) = oneshot::channel();
    book.wait(&user("a"), answer);
    book.settle(left, vec![Ok(vec![])]);
    assert!(told.try_recv().is_err());
    let came = book.take_marked(9, |_| true);
    assert_eq!(came, [here("a")]);
    let strangers = book.settle(came, vec![Ok(vec!["s2".parse().unwrap()])]);
    assert!(told.try_recv().is_err(), "the other server is to know first");
    for Stranger { servers, waiting, .. } in strangers {
        tell(waiting, &servers);
    }
    assert_eq!(told.await.unwrap(), ["s2".parse().unwrap()]);
}

#[test]
fn who_else_has_a_user_is_known_from_the_registry_and_from_them() {
    let (book, server) = (Book::default(), |name: &str| name.parse::<ServerId>().unwrap());
    let write = |answer: &[&str], meanwhile: &dyn Fn()| {
        book.mark([user("a")]);
        let truths = book.take_marked(9, |_| true);
        meanwhile();
        let strangers = book.settle(truths, vec![Ok(answer.iter().map(|name| server(name)).collect())]);
        strangers.into_iter().flat_map(|stranger| stranger.servers).map(|server| server.to_string()).collect::<Vec<_>>()
    };
    assert!(write(&[], &|| ()).is_empty());
    assert_eq!((book.presence(&user("a")), book.alone([&user("a")].into_iter()).len()), (Presence::Here, 1));
    assert_eq!(write(&["s2"], &|| ()), ["s2"]);
    assert_eq!(write(&["s2"], &|| ()), ["s2"], "it may have forgotten");
    assert_eq!((book.presence(&user("a")), book.alone([&user("a")].into_iter()).len()), (Presence::Shared, 0));
    assert!(write(&[], &|| book.introduce(&user("a"), &server("s3"))).is_empty());
    assert_eq!(book.presence(&user("a")), Presence::Shared, "the answer may be from before the introduction");
    write(&[], &|| ());
    assert_eq!(book.presence(&user("a")), Presence::Here);
    book.introduce(&user("b"), &server("s3"));
    assert_eq!(book.presence(&user("b")), Presence::Unconfirmed);
}

#[test]
fn a_write_without_an_answer_is_written_again_at_once_and_repaired_later() {
    let book = Book::default();
    book.mark([user("a")]);
    let lost = book.take_marked(9, |_| true);
    book.settle(lost, vec![Err(Error::Away)]);
    assert!(book.is_degraded());
    let again = book.take_marked(9, |_| true);
    assert_eq!(again, [here("a")]);
    book.settle(again, vec![Ok(vec![])]);
    assert!(!book.is_degraded());
    assert_eq!(book.presence(&user("a")), Presence::Here);
    assert_eq!(book.take_repairs(Instant::now() + REPAIR_AFTER), [user("a")]);
    assert!(book.take_repairs(Instant::now() + REPAIR_AFTER).is_empty());
}

#[test]
fn a_server_that_asserts_all_its_users_is_degraded_until_each_is_written() {
    let book = Book::default();
    book.assert_all(vec![user("a"), user("b")]);
    let both = book.take_marked(9, |_| true);
    book.settle(both, vec![Ok(vec![]), Err(Error::Away)]);
    assert!(book.is_degraded());
    let rest = book.take_marked(9, |_| false);
    book.settle(rest, vec![Ok(vec![])]);
    assert!(!book.is_degraded());
}

#[test]
fn a_user_who_left_leaves_nothing_behind() {
    let book = Book::default();
    book.mark([user("a"), user("a")]);
    let left = book.take_marked(9, |_| false);
    assert_eq!(left.len(), 1);
    book.settle(left, vec![Ok(vec![])]);
    assert!(book.lock().claims.is_empty());
}

#[test]
fn nothing_is_written_while_writes_are_kept_back() {
    let book = Book::default();
    book.allow_until(Instant::now());
    book.mark([user("a")]);
    assert!(book.take_marked(9, |_| true).is_empty());
    assert!(book.is_degraded());
    book.allow_until(Instant::now() + REPAIR_AFTER);
    assert_eq!(book.take_marked(9, |_| true).len(), 1);
}
