//! Chains, groups and chords, nested as one likes, as a flat list of jobs that wait for each other.

use crate::limits::WORKFLOW_LINKS_MAX;
use crate::refusal::{Invalid, Refusal};

/// How jobs are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape<J> {
    Job(J),
    /// One after the other.
    Chain(Vec<Shape<J>>),
    /// Side by side.
    Group(Vec<Shape<J>>),
    /// Side by side, and something once all of them have completed.
    Chord {
        group: Vec<Shape<J>>,
        finally: Box<Shape<J>>,
    },
}

/// A job, and the places of those it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<J> {
    pub job: J,
    pub after: Vec<usize>,
}

/// All jobs in the order in which they were written.
pub fn flatten<J>(shape: Shape<J>) -> Result<Vec<Placed<J>>, Refusal> {
    let mut flat = Flat { jobs: Vec::new(), links: 0 };
    flat.add(shape, &[])?;
    Ok(flat.jobs)
}

struct Flat<J> {
    jobs: Vec<Placed<J>>,
    links: usize,
}

impl<J> Flat<J> {
    /// Adds a shape behind these places, and says which places have to end before it has.
    fn add(&mut self, shape: Shape<J>, after: &[usize]) -> Result<Vec<usize>, Refusal> {
        match shape {
            Shape::Job(job) => {
                self.links += after.len();
                if self.links > WORKFLOW_LINKS_MAX {
                    return Err(too_many_links().into());
                }
                self.jobs.push(Placed { job, after: after.to_vec() });
                Ok(vec![self.jobs.len() - 1])
            }
            Shape::Chain(links) => {
                not_empty("chain", &links)?;
                links.into_iter().try_fold(after.to_vec(), |after, link| self.add(link, &after))
            }
            Shape::Group(members) => {
                not_empty("group", &members)?;
                self.side_by_side(members, after)
            }
            Shape::Chord { group, finally } => {
                not_empty("group", &group)?;
                let ends = self.side_by_side(group, after)?;
                self.add(*finally, &ends)
            }
        }
    }

    fn side_by_side(&mut self, members: Vec<Shape<J>>, after: &[usize]) -> Result<Vec<usize>, Refusal> {
        let mut ends = Vec::with_capacity(members.len());
        for member in members {
            ends.extend(self.add(member, after)?);
        }
        Ok(ends)
    }
}

fn not_empty<J>(what: &'static str, shapes: &[Shape<J>]) -> Result<(), Invalid> {
    if shapes.is_empty() { Err(Invalid::new(what, "must hold at least one job")) } else { Ok(()) }
}

pub(crate) fn too_many_links() -> Invalid {
    Invalid::new("jobs", format!("may have at most {WORKFLOW_LINKS_MAX} dependencies in one call"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(links: Vec<Shape<char>>) -> Shape<char> {
        Shape::Chain(links)
    }

    fn group(jobs: &str) -> Shape<char> {
        Shape::Group(jobs.chars().map(Shape::Job).collect())
    }

    fn flat(shape: Shape<char>) -> String {
        let word = |placed: Placed<char>| {
            let after: Vec<String> = placed.after.iter().map(ToString::to_string).collect();
            format!("{}:{}", placed.job, after.join("+"))
        };
        flatten(shape).unwrap().into_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Proves T-33, T-34, T-35, G-6.3.
    #[test]
    fn chains_groups_and_chords() {
        assert_eq!(flat(chain("abc".chars().map(Shape::Job).collect())), "a: b:0 c:1");
        assert_eq!(flat(group("abc")), "a: b: c:");
        let chord = Shape::Chord { group: "abc".chars().map(Shape::Job).collect(), finally: Box::new(Shape::Job('f')) };
        assert_eq!(flat(chord), "a: b: c: f:0+1+2");
    }

    #[test]
    fn they_nest() {
        assert_eq!(flat(chain(vec![Shape::Job('a'), group("bc"), Shape::Job('d')])), "a: b:0 c:0 d:1+2");
        assert_eq!(flat(chain(vec![group("ab"), group("cd")])), "a: b: c:0+1 d:0+1");
        let inner = chain(vec![Shape::Job('a'), Shape::Job('b')]);
        let chord = Shape::Chord { group: vec![inner, Shape::Job('c')], finally: Box::new(group("xy")) };
        assert_eq!(flat(chain(vec![chord, Shape::Job('z')])), "a: b:0 c: x:1+2 y:1+2 z:3+4");
    }

    #[test]
    fn what_holds_nothing_or_too_much_is_refused() {
        for empty in [Shape::Chain(Vec::new()), group(""), chain(vec![Shape::Job('a'), group("")])] {
            assert_eq!(flatten(empty).unwrap_err().code(), "validation");
        }
        let wide = || Shape::Group(vec![Shape::Job('a'); 400]);
        assert_eq!(flatten(chain(vec![wide(), wide()])).unwrap_err().code(), "validation");
        assert_eq!(flatten(chain(vec![wide(), Shape::Group(vec![Shape::Job('b'); 250])])).unwrap().len(), 650);
    }
}
