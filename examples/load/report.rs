//! What came of a run.

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
    faults(&mut text, &outcome.totals);
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

/// Deliveries that did not come.
pub(crate) fn lost(totals: &Totals) -> u64 {
    totals.expected.saturating_sub(totals.delivered)
}

/// Deliveries that nobody knows of why they came.
pub(crate) fn surplus(totals: &Totals) -> u64 {
    totals.delivered.saturating_sub(totals.expected)
}

fn faults(text: &mut String, totals: &Totals) {
    let Totals { expected, doubled, strayed, out_of_order, stalls, unsent, .. } = totals;
    let (lost, surplus) = (lost(totals), surplus(totals));
    let _ = writeln!(
        text,
        "whole run: {expected} deliveries due, {lost} lost, {doubled} doubled, {out_of_order} out of order, \
         {strayed} to others, {surplus} too many, {unsent} messages not written, {stalls} stalls"
    );
    for (what, counts) in [("connections that", &totals.ended), ("errors with code", &totals.errors)] {
        for (name, count) in counts {
            let _ = writeln!(text, "  {count} {what} {name}");
        }
    }
}
