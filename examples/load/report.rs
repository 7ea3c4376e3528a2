//! What came of a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use crate::args::Args;
use crate::conductor::Outcome;
use crate::stats::Totals;
use crate::view::View;

/// The quantiles that are shown; 1 is the longest.
pub(crate) const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// How much of its threads' time the generator may use before its own work shows in what it measures.
const BUSY: f64 = 0.8;

/// Shows everything, and appends it to the file that was asked for.
pub(crate) fn report(args: &Args, mut outcome: Outcome) -> anyhow::Result<()> {
    outcome.totals.span(outcome.spans.len().saturating_sub(1));
    let Some(first) = outcome.spans.first() else { return Ok(()) };
    let spans = outcome.spans.iter().zip(&outcome.totals.spans);
    let views: Vec<_> = spans.map(|(measured, span)| View { args, measured, span, first }).collect();
    let mut text = String::new();
    views.iter().for_each(|view| view.table(&mut text));
    warn(&mut text, &views);
    tell_faults(&mut text, &outcome.totals);
    std::io::stdout().write_all(text.as_bytes())?;
    if let Some(file) = &args.json {
        let lines = views.iter().map(|view| view.json(&outcome.totals).to_string());
        append(file, &lines.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(())
}

/// A generator that is busy measures itself.
fn warn(text: &mut String, views: &[View<'_>]) {
    let is_busy = |view: &View<'_>| view.share_of_load() > BUSY;
    for view in views.iter().filter(|view| is_busy(view)) {
        let share = view.share_of_load() * 100.0;
        let name = view.measured.name;
        let _ = writeln!(
            text,
            "{name}: the generator's threads were busy for {share:.0}% of the time; its latencies are too long"
        );
    }
}

fn append(file: &Path, lines: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{lines}\n").as_bytes())
}

/// What may be at fault in the whole run: how often each was.
fn counts(totals: &Totals) -> [(&'static str, u64); 8] {
    [
        ("lost", totals.expected.saturating_sub(totals.delivered)),
        ("doubled", totals.doubled),
        ("out of order", totals.out_of_order),
        ("to others", totals.strayed),
        ("too many", totals.delivered.saturating_sub(totals.expected)),
        ("messages not written", totals.unsent),
        ("not told that they are stored", totals.asked.saturating_sub(totals.answered)),
        ("stalls", totals.stalls),
    ]
}

/// What was at fault in the whole run, and how often; empty where all is well.
pub(crate) fn faults(totals: &Totals) -> BTreeMap<String, u64> {
    let counted = counts(totals).map(|(what, count)| (what.to_owned(), count));
    let ended = totals.ended.iter().map(|(why, count)| (format!("connections that {why}"), *count));
    let errors = totals.errors.iter().map(|(code, count)| (format!("errors with code {code}"), *count));
    counted.into_iter().chain(ended).chain(errors).filter(|(_, count)| *count > 0).collect()
}

fn tell_faults(text: &mut String, totals: &Totals) {
    let counts = counts(totals).map(|(what, count)| format!("{count} {what}"));
    let _ = writeln!(text, "whole run: {} deliveries due, {}", totals.expected, counts.join(", "));
    for (what, counts) in [("connections that", &totals.ended), ("errors with code", &totals.errors)] {
        for (name, count) in counts {
            let _ = writeln!(text, "  {count} {what} {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_at_fault_is_named() {
        let well = Totals { expected: 2, delivered: 2, ..Totals::default() };
        assert!(faults(&well).is_empty());
        let mut totals = Totals { expected: 3, delivered: 1, doubled: 4, ..Totals::default() };
        totals.ended("closed with 1001".into());
        let said: Vec<_> = faults(&totals).into_iter().map(|(what, count)| format!("{count} {what}")).collect();
        assert_eq!(said, ["1 connections that closed with 1001", "4 doubled", "2 lost"]);
    }
}
