//! Draws the plots of `bench/plots` from the samples beside them.

mod chart;
mod figures;
mod scale;
mod theme;

use std::path::PathBuf;

use crate::samples::SampleFile;

#[derive(Debug, clap::Args)]
pub struct PlotOptions {
    /// Directory with the samples; the plots are written beside them
    #[arg(default_value = "bench/plots")]
    directory: PathBuf,
}

/// Draws each plot whose samples exist, light and dark.
pub fn run(options: &PlotOptions) -> Result<(), String> {
    let mut drawn = 0;
    for figure in figures::all() {
        let source = options.directory.join(format!("{}.csv", figure.name));
        if !source.is_file() {
            eprintln!("no samples for {}: {} is missing (run `sweep {}`)", figure.name, source.display(), figure.name);
            continue;
        }
        let chart = figure.draw(&SampleFile::read(&source)?);
        for theme in [theme::LIGHT, theme::DARK] {
            let path = options.directory.join(format!("{}{}.svg", figure.name, theme.suffix));
            std::fs::write(&path, chart.to_svg(&theme))
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            println!("{}", path.display());
        }
        drawn += 1;
    }
    if drawn == 0 {
        return Err(format!("cannot draw: no samples in {} (run `sweep` first)", options.directory.display()));
    }
    Ok(())
}
