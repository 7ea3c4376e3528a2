//! How a database is opened, and what is said when it cannot be.

use std::process::Command;

use minichat::store::OpenError;

use super::*;

on_both!(a_database_keeps_its_id, a_database_of_a_newer_version_is_refused, an_open_database_answers);

async fn a_database_keeps_its_id(database: Database) {
    let store = database.open().await;
    let id = store.database_id().to_owned();
    assert_eq!(id.len(), 32);
    drop(store);
    assert_eq!(database.open().await.database_id(), id);
}

async fn an_open_database_answers(database: Database) {
    database.open().await.ping().await.unwrap();
}

async fn a_database_of_a_newer_version_is_refused(database: Database) {
    drop(database.open().await);
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        SELECT 9999, 'later', success, checksum, 0 FROM _sqlx_migrations LIMIT 1";
    if database.directory.is_some() {
        let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
        sqlx::query(later).execute(&mut connection).await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query(later).execute(&mut connection).await.unwrap();
    }
    let error = Store::open(&database.url, &Options::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer { schema: 9999, .. }), "{error}");
}

#[tokio::test]
async fn ten_servers_open_an_empty_postgresql_at_once() {
    let database = Database::postgres().await;
    let options = Options { connections: 2, ..Options::default() };
    let opening: Vec<_> = (0..10)
        .map(|_| {
            let (url, options) = (database.url.clone(), options.clone());
            tokio::spawn(async move { Store::open(&url, &options).await.unwrap() })
        })
        .collect();
    let mut ids = Vec::new();
    for store in opening {
        let store = store.await.unwrap();
        store.ping().await.unwrap();
        ids.push(store.database_id().to_owned());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_second_process_on_the_sqlite_file_is_refused() {
    let database = Database::sqlite();
    let path = database.url.strip_prefix("sqlite:").unwrap();
    // Another process, whose standard input is our end of it: it holds the lock until that is closed.
    let mut other = Command::new("flock")
        .args(["--exclusive", &format!("{path}-lock"), "sh", "-c", "echo held; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("this test needs flock: install util-linux");
    std::io::Read::read_exact(&mut other.stdout.take().unwrap(), &mut [0; 4]).unwrap();
    let error = Store::open(&database.url, &Options::default()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the database {path} is in use by another process"));
    drop(other.stdin.take());
    other.wait().unwrap();
    let store = database.open().await;
    let again = Store::open(&database.url, &Options::default()).await.unwrap_err();
    assert!(matches!(again, OpenError::Locked { .. }), "{again}");
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_is_missing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/some/where/chat.db", directory.path().display());
    Store::open(&url, &Options::default()).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_line_without_the_password() {
    let options = Options::default();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = Postgres::shared().url();
    for (url, begin) in [
        ("mysql://u:secret@h/d".to_owned(), "the database URL mysql://u:***@h/d is not understood: "),
        ("sqlite:".into(), "the database URL sqlite: is not understood: "),
        ("sqlite::memory:".into(), "the database URL sqlite::memory: is not understood: "),
        ("postgres://u:secret@h:port/d".into(), "the database URL postgres://u:***@h:port/d is not understood: "),
        (format!("postgres://u:secret@127.0.0.1:{closed}/d"), "the database postgres://u:***@127.0.0.1:"),
        (url.replace("/postgres", "/nothing"), "the database postgres://"),
        ("sqlite:/proc/nothing/chat.db".into(), "the database sqlite:/proc/nothing/chat.db cannot be written: "),
    ] {
        let error = Store::open(&url, &options).await.unwrap_err().to_string();
        assert!(error.starts_with(begin), "{error}");
        assert!(!error.contains("secret") && !error.contains('\n'), "{error}");
    }
    let refused = Store::open(&url.replace("/postgres", "/nothing"), &options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Refused { .. }), "{refused}");
    let unreachable = Store::open(&format!("postgres://127.0.0.1:{closed}/d"), &options).await.unwrap_err();
    assert!(matches!(unreachable, OpenError::Unreachable { .. }), "{unreachable}");
}
