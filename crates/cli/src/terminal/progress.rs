//! Progress bars on standard error, hidden unless it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Returns a bar, or a spinner if the total is unknown. The message says what has been done.
pub(crate) fn bar(total: Option<u64>, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let template = match total {
        Some(_) => "{bar:32} {percent:>3}%  {msg}",
        None => "{spinner} {msg}",
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
