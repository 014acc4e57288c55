//! Progress bars: on standard error, and only where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar towards a known end, or a sign of life without one; the message says what was done so far.
pub(crate) fn bar(total: Option<u64>, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let shape = match total {
        Some(_) => "{bar:32} {percent:>3}%  {msg}",
        None => "{spinner} {msg}",
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar
}
