//! Jobs, as a user watches them.

use crate::arguments::{Cli, Command};
use crate::terminal::Terminal;
use admin_api::{
    AdminError, Code, JobInfo, JobKind, JobState, Remote, Reply, Request, Time, Transport,
};
use clap::Parser as _;
use platform::sync::Mutex;

/// Answers each look with what comes next; then the server has ended.
struct Script(Mutex<Vec<Vec<JobInfo>>>);

impl Transport for Script {
    fn call(&self, request: Request) -> Result<Reply, AdminError> {
        let mut looks = self.0.lock();
        if looks.is_empty() {
            return Err(AdminError::new(Code::Unreachable, "cannot reach the server at", "x"));
        }
        let mut jobs = looks.remove(0);
        match request {
            Request::JobList => Ok(Reply::JobList(jobs)),
            Request::JobShow(wanted) => {
                jobs.retain(|job| job.job == wanted.job);
                Ok(Reply::JobShow(jobs.remove(0)))
            }
            other => panic!("{other:?} is no look"),
        }
    }
}

fn job(number: u64, state: JobState, percent: u64) -> JobInfo {
    JobInfo {
        job: number,
        kind: JobKind::Rebuild,
        aggregate: Some("a1".to_owned()),
        target: format!("d{number}"),
        state,
        began: Time::default(),
        ended: None,
        done_bytes: percent,
        size_bytes: 100,
        bytes_per_second: None,
        left_ns: None,
        rate_limit_bytes_per_second: None,
        reason: None,
    }
}

/// Exit status, standard output and standard error.
fn typed(line: &str, is_screen: bool, looks: &[&[JobInfo]]) -> (u8, String, String) {
    let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
    let Command::Client(command) = &cli.command else { panic!("{line} is no client command") };
    let node = Remote(Script(Mutex::new(looks.iter().map(|jobs| jobs.to_vec()).collect())));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let program = "./stroop --config x".to_owned();
    let (out_to, err_to, input) = (&mut out, &mut err, None);
    let mut terminal = Terminal {
        out: out_to,
        err: err_to,
        input,
        colour: false,
        columns: None,
        is_screen,
        program,
    };
    let status = crate::commands::run(command, &cli.options, &node, &mut terminal);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status, text(out), text(err))
}

use JobState::{Cancelled, Failed, Paused, Running, Succeeded};

#[test]
fn a_pipe_has_a_line_for_each_change_until_no_job_goes_on() {
    let failed = JobInfo { reason: Some("d\n3 has gone".to_owned()), ..job(3, Failed, 7) };
    let looks: [&[JobInfo]; 4] = [
        &[job(1, Succeeded, 100), job(2, Running, 10), job(4, Paused, 1)],
        &[job(1, Succeeded, 100), job(2, Running, 10), job(4, Paused, 1)],
        // One that began and ended between two looks.
        &[job(2, Running, 55), failed.clone(), job(4, Paused, 1)],
        &[job(2, Succeeded, 100), failed, job(4, Paused, 1)],
    ];
    let (status, out, err) = typed("stroop job watch", false, &looks);
    let expected = "\
job 2: rebuild of d2 in a1, running 10%
job 4: rebuild of d4 in a1, paused 1%
job 2: rebuild of d2 in a1, running 55%
job 3: rebuild of d3 in a1, failed: d\\n3 has gone
job 2: rebuild of d2 in a1, succeeded
";
    assert_eq!(out, expected);
    assert_eq!(status, 1);
    assert!(err.contains("try: ./stroop --config x job list\n"), "{err}");
    let (_, json, _) = typed("stroop job watch -o json", false, &looks);
    let lines: Vec<JobInfo> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|job| job.job).collect::<Vec<_>>(), [2, 4, 2, 3, 2]);
    assert_eq!(typed("stroop job watch -o name", false, &looks).1, "3\n2\n");
    let none: &[&[JobInfo]] = &[&[job(1, Cancelled, 3)]];
    let told = (0, "no job is under way\n".to_owned(), String::new());
    assert_eq!(typed("stroop job watch", false, none), told);
}

#[test]
fn one_job_is_watched_to_its_end() {
    let status = |line: &str, looks: &[&[JobInfo]]| typed(line, false, looks).0;
    let ends = |state| [job(2, Running, 3), job(2, state, 9)];
    for (state, expected) in [(Succeeded, 0), (Failed, 1), (Cancelled, 1), (Paused, 4)] {
        let [begun, over] = ends(state);
        assert_eq!(status("stroop job watch 2", &[&[begun], &[over]]), expected, "{state}");
    }
    // As long as it is said, and no longer.
    let runs: &[JobInfo] = &[job(2, Running, 3)];
    assert_eq!(status("stroop job watch 2 --wait 0s", &[runs]), 7);
    assert_eq!(status("stroop job watch --wait 1s", &[runs, runs, runs]), 7);
    assert_eq!(status("stroop job watch", &[runs, runs]), 6, "the server has ended");
}

#[test]
fn a_screen_is_written_over() {
    let many: Vec<JobInfo> = (1..=14).map(|number| job(number, Running, 1)).collect();
    let mut later = many.clone();
    later[0].state = Succeeded;
    later.truncate(2);
    let last = [job(2, Succeeded, 100)];
    let (status, out, _) = typed("stroop job watch", true, &[&many, &later, &last]);
    assert_eq!(status, 0);
    let blocks: Vec<&str> = out.split("\r\x1b[J").collect();
    let [before, first, second, third] = blocks.as_slice() else { panic!("{out:?}") };
    assert_eq!(*before, "");
    assert!(first.starts_with("\x1b[?7ljob 1: "), "{first:?}");
    // Thirteen lines were written, and are written over.
    assert!(first.ends_with("and 2 more\n\x1b[?7h\x1b[13A"), "{first:?}");
    let expected = "job 1: rebuild of d1 in a1, succeeded\n\x1b[?7ljob 2: rebuild of d2 in a1, \
                    running 1%\n\x1b[?7h\x1b[1A";
    assert_eq!(*second, expected);
    assert_eq!(*third, "job 2: rebuild of d2 in a1, succeeded\n\x1b[?7l\x1b[?7h");
}
