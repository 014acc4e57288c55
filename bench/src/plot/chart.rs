//! Draws line charts as SVG: panels side by side, medians as lines, ranges of rounds as bands.

use std::fmt::Write as _;

use super::scale::{Notation, Scale, Spacing};
use super::theme::Theme;
use crate::samples::Spread;

/// One series of a panel.
#[derive(Clone, Debug)]
pub struct ChartLine {
    pub name: String,
    pub points: Vec<(f64, Spread)>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct ChartPanel {
    pub heading: String,
    pub position_label: String,
    pub position_notation: Notation,
    pub value_notation: Notation,
    pub value_spacing: Spacing,
    pub lines: Vec<ChartLine>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub subtitle: String,
    pub panels: Vec<ChartPanel>,
}

const WIDTH: f64 = 920.0;
const MARGIN: f64 = 28.0;
const PANEL_GAP: f64 = 30.0;
/// Room for the labels of a value axis.
const AXIS_WIDTH: f64 = 46.0;
const PLOT_HEIGHT: f64 = 250.0;
const LEGEND_ROW: f64 = 20.0;
const LEGEND_TOP: f64 = 84.0;
/// Pixels between the centres of two labels of a position axis.
const LABEL_SPACE: f64 = 46.0;
/// Mean width of a letter of 12 pixels.
const LETTER: f64 = 6.5;
const FONT: &str = "Inter, ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// How a text is placed and drawn.
struct TextStyle<'a> {
    size: f64,
    weight: u16,
    color: &'a str,
    anchor: &'a str,
}

fn write_text(svg: &mut String, (x, y): (f64, f64), style: &TextStyle<'_>, text: &str) {
    let TextStyle { size, weight, color, anchor } = style;
    let text = escape(text);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" font-weight="{weight}" fill="{color}" text-anchor="{anchor}">{text}</text>"#
    );
}

impl Chart {
    /// Names of all series in order of appearance: their index selects the colour.
    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for line in self.panels.iter().flat_map(|panel| &panel.lines) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
        names
    }

    pub fn to_svg(&self, theme: &Theme) -> String {
        let names = self.names();
        let mut body = String::new();
        let legend_bottom = write_legend(&mut body, theme, &names);
        let top = legend_bottom + 42.0;
        let count = self.panels.len().max(1) as f64;
        let panel_width = (WIDTH - 2.0 * MARGIN - PANEL_GAP * (count - 1.0)) / count;
        for (index, panel) in self.panels.iter().enumerate() {
            let left = MARGIN + index as f64 * (panel_width + PANEL_GAP);
            let frame = Frame { left: left + AXIS_WIDTH, right: left + panel_width, top, bottom: top + PLOT_HEIGHT };
            panel.write(&mut body, theme, frame, &names);
        }
        let height = top + PLOT_HEIGHT + 62.0;
        let Theme { surface, border, text, muted, .. } = theme;
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" font-family=\"{FONT}\" role=\"img\">\n<title>{title}</title>\n"
        );
        let _ = writeln!(
            svg,
            r#"<rect x="0.5" y="0.5" width="{:.1}" height="{:.1}" rx="10" fill="{surface}" stroke="{border}"/>"#,
            WIDTH - 1.0,
            height - 1.0
        );
        let heading = TextStyle { size: 19.0, weight: 600, color: text, anchor: "start" };
        write_text(&mut svg, (MARGIN, 38.0), &heading, &self.title);
        let subtitle = TextStyle { size: 12.5, weight: 400, color: muted, anchor: "start" };
        write_text(&mut svg, (MARGIN, 60.0), &subtitle, &self.subtitle);
        svg.push_str(&body);
        svg.push_str("</svg>\n");
        svg
    }
}

/// Writes the names of the series with their colours. Returns the lower edge.
fn write_legend(svg: &mut String, theme: &Theme, names: &[&str]) -> f64 {
    let (mut x, mut y) = (MARGIN, LEGEND_TOP);
    for (index, name) in names.iter().enumerate() {
        let width = 26.0 + name.chars().count() as f64 * LETTER + 22.0;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + LEGEND_ROW);
        }
        let color = theme.series[index % theme.series.len()];
        let (middle, end) = (x + 10.0, x + 20.0);
        let level = y - 4.0;
        let _ = writeln!(
            svg,
            r#"<path d="M{x:.1} {level:.1}H{end:.1}" stroke="{color}" stroke-width="2.5" stroke-linecap="round"/><circle cx="{middle:.1}" cy="{level:.1}" r="3.6" fill="{color}"/>"#
        );
        let style = TextStyle { size: 12.0, weight: 500, color: theme.text, anchor: "start" };
        write_text(svg, (x + 27.0, y), &style, name);
        x += width;
    }
    y
}

/// Edges of the drawing area of a panel.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl ChartPanel {
    fn write(&self, svg: &mut String, theme: &Theme, frame: Frame, names: &[&str]) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let positions: Vec<f64> = points().map(|(position, _)| *position).collect();
        let values: Vec<f64> = points().flat_map(|(_, spread)| [spread.min, spread.max]).collect();
        let inset = 12.0;
        let across = Scale::new(Spacing::Logarithmic, &positions, (frame.left + inset, frame.right - inset));
        let up = Scale::new(self.value_spacing, &values, (frame.bottom, frame.top)).rounded();
        let heading = TextStyle { size: 12.5, weight: 600, color: theme.text, anchor: "start" };
        write_text(svg, (frame.left - AXIS_WIDTH, frame.top - 12.0), &heading, &self.heading);
        self.write_value_axis(svg, theme, frame, &up);
        self.write_position_axis(svg, theme, frame, &across, positions);
        for line in &self.lines {
            let index = names.iter().position(|name| *name == line.name).unwrap_or(0);
            line.write(svg, theme, theme.series[index % theme.series.len()], (&across, &up));
        }
    }

    fn write_value_axis(&self, svg: &mut String, theme: &Theme, frame: Frame, up: &Scale) {
        let Frame { left, right, bottom, .. } = frame;
        let style = TextStyle { size: 11.0, weight: 400, color: theme.muted, anchor: "end" };
        for tick in up.ticks() {
            let y = up.place(tick);
            let _ = writeln!(svg, r#"<path d="M{left:.1} {y:.1}H{right:.1}" stroke="{}"/>"#, theme.grid);
            write_text(svg, (left - 7.0, y + 4.0), &style, &self.value_notation.show(tick));
        }
        let _ = writeln!(svg, r#"<path d="M{left:.1} {bottom:.1}H{right:.1}" stroke="{}"/>"#, theme.axis);
    }

    /// Labels the measured positions, as far as there is room.
    fn write_position_axis(&self, svg: &mut String, theme: &Theme, frame: Frame, across: &Scale, positions: Vec<f64>) {
        let Frame { left, right, bottom, .. } = frame;
        let mut ticks = positions;
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let style = TextStyle { size: 11.0, weight: 400, color: theme.muted, anchor: "middle" };
        let mut free = f64::NEG_INFINITY;
        for tick in ticks {
            let x = across.place(tick);
            let (color, end) = (theme.axis, bottom + 4.0);
            let _ = writeln!(svg, r#"<path d="M{x:.1} {bottom:.1}V{end:.1}" stroke="{color}"/>"#);
            if x >= free {
                write_text(svg, (x, bottom + 18.0), &style, &self.position_notation.show(tick));
                free = x + LABEL_SPACE;
            }
        }
        let label = TextStyle { size: 12.0, ..style };
        write_text(svg, (f64::midpoint(left, right), bottom + 40.0), &label, &self.position_label);
    }
}

impl ChartLine {
    /// Draws the band of all rounds, then the medians.
    fn write(&self, svg: &mut String, theme: &Theme, color: &str, (across, up): (&Scale, &Scale)) {
        let place = |position: f64, value: f64| format!("{:.1} {:.1}", across.place(position), up.place(value));
        let upper = self.points.iter().map(|(position, spread)| place(*position, spread.max));
        let lower = self.points.iter().rev().map(|(position, spread)| place(*position, spread.min));
        let band: Vec<String> = upper.chain(lower).collect();
        let opacity = theme.band_opacity;
        let _ = writeln!(svg, r#"<path d="M{}Z" fill="{color}" fill-opacity="{opacity}"/>"#, band.join("L"));
        let medians: Vec<String> =
            self.points.iter().map(|(position, spread)| place(*position, spread.median)).collect();
        let _ = writeln!(
            svg,
            r#"<path d="M{}" fill="none" stroke="{color}" stroke-width="2.2" stroke-linejoin="round" stroke-linecap="round"/>"#,
            medians.join("L")
        );
        for (position, spread) in &self.points {
            let (x, y) = (across.place(*position), up.place(spread.median));
            let surface = theme.surface;
            let _ = writeln!(
                svg,
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6" fill="{color}" stroke="{surface}" stroke-width="1.4"/>"#
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chart, ChartLine, ChartPanel};
    use crate::plot::scale::{Notation, Spacing};
    use crate::plot::theme::{DARK, LIGHT};
    use crate::samples::Spread;

    fn chart() -> Chart {
        let point = |position: f64, median: f64| (position, Spread { median, min: median * 0.9, max: median * 1.1 });
        let line = |name: &str, factor: f64| ChartLine {
            name: name.to_owned(),
            points: [1.0, 10.0, 100.0].map(|position| point(position, position * factor)).into(),
        };
        Chart {
            title: "Throughput & <batch> size".to_owned(),
            subtitle: "two series".to_owned(),
            panels: vec![ChartPanel {
                heading: "jobs/s".to_owned(),
                position_label: "jobs per request".to_owned(),
                position_notation: Notation::Count,
                value_notation: Notation::Count,
                value_spacing: Spacing::Logarithmic,
                lines: vec![line("submit", 1_000.0), line("drain", 500.0)],
            }],
        }
    }

    #[test]
    fn chart_draws_every_point_and_escapes_texts() {
        let svg = chart().to_svg(&LIGHT);
        // Three points of two series, and two swatches of the legend.
        assert_eq!(svg.matches("<circle").count(), 3 * 2 + 2);
        assert!(svg.contains("<title>Throughput &amp; &lt;batch&gt; size</title>"), "{svg}");
        assert!(svg.contains(">jobs per request</text>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn themes_differ_in_colour_only() {
        let (light, dark) = (chart().to_svg(&LIGHT), chart().to_svg(&DARK));
        assert!(light.contains(LIGHT.surface) && dark.contains(DARK.surface));
        assert_eq!(light.lines().count(), dark.lines().count());
    }
}
