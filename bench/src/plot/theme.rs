//! Colours of the plots, light and dark. They follow the design tokens of the dashboard.

#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Ends the file name of a plot.
    pub suffix: &'static str,
    pub surface: &'static str,
    pub border: &'static str,
    pub grid: &'static str,
    pub axis: &'static str,
    pub text: &'static str,
    pub muted: &'static str,
    /// Colours of series, in order.
    pub series: [&'static str; 6],
    pub band_opacity: &'static str,
}

pub const LIGHT: Theme = Theme {
    suffix: "",
    surface: "#ffffff",
    border: "#e4e8ed",
    grid: "#eceff3",
    axis: "#cdd4dd",
    text: "#11161d",
    muted: "#606b7a",
    series: ["#0e7da3", "#c2570c", "#06776a", "#6f45c4", "#c41f33", "#606b7a"],
    band_opacity: "0.14",
};

pub const DARK: Theme = Theme {
    suffix: "-dark",
    surface: "#11151b",
    border: "#212834",
    grid: "#1f2631",
    axis: "#3c4757",
    text: "#e9edf2",
    muted: "#97a3b2",
    series: ["#4fb6d8", "#f0a04b", "#3cc9ae", "#b39cf0", "#f27d8b", "#97a3b2"],
    band_opacity: "0.18",
};
