//! Nested chains, groups and chords, flattened to a list of jobs with dependencies.

use crate::limits::WORKFLOW_EDGES_MAX;
use crate::refusal::{Invalid, Refusal};

/// How jobs are combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkflowShape<J> {
    Job(J),
    /// Runs one after the other.
    Chain(Vec<WorkflowShape<J>>),
    /// Runs in parallel.
    Group(Vec<WorkflowShape<J>>),
    /// Runs `group` in parallel, then `finally` after all of it have completed.
    Chord {
        group: Vec<WorkflowShape<J>>,
        finally: Box<WorkflowShape<J>>,
    },
}

/// A job, and the indexes of the jobs it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatJob<J> {
    pub job: J,
    pub after: Vec<usize>,
}

/// Returns all jobs, in the order of the request.
pub fn flatten<J>(shape: WorkflowShape<J>) -> Result<Vec<FlatJob<J>>, Refusal> {
    let mut flat = Flattener { jobs: Vec::new(), edges: 0 };
    flat.add(shape, &[])?;
    Ok(flat.jobs)
}

struct Flattener<J> {
    jobs: Vec<FlatJob<J>>,
    edges: usize,
}

impl<J> Flattener<J> {
    /// Adds a shape that waits for `after`. Returns the indexes of its last jobs.
    fn add(&mut self, shape: WorkflowShape<J>, after: &[usize]) -> Result<Vec<usize>, Refusal> {
        match shape {
            WorkflowShape::Job(job) => {
                self.edges += after.len();
                if self.edges > WORKFLOW_EDGES_MAX {
                    return Err(too_many_edges().into());
                }
                self.jobs.push(FlatJob { job, after: after.to_vec() });
                Ok(vec![self.jobs.len() - 1])
            }
            WorkflowShape::Chain(shapes) => {
                not_empty("chain", &shapes)?;
                shapes.into_iter().try_fold(after.to_vec(), |after, shape| self.add(shape, &after))
            }
            WorkflowShape::Group(members) => {
                not_empty("group", &members)?;
                self.add_parallel(members, after)
            }
            WorkflowShape::Chord { group, finally } => {
                not_empty("group", &group)?;
                let ends = self.add_parallel(group, after)?;
                self.add(*finally, &ends)
            }
        }
    }

    fn add_parallel(&mut self, members: Vec<WorkflowShape<J>>, after: &[usize]) -> Result<Vec<usize>, Refusal> {
        let mut ends = Vec::with_capacity(members.len());
        for member in members {
            ends.extend(self.add(member, after)?);
        }
        Ok(ends)
    }
}

fn not_empty<J>(what: &'static str, shapes: &[WorkflowShape<J>]) -> Result<(), Invalid> {
    if shapes.is_empty() { Err(Invalid::new(what, "must hold at least one job")) } else { Ok(()) }
}

pub fn too_many_edges() -> Invalid {
    Invalid::new("jobs", format!("may have at most {WORKFLOW_EDGES_MAX} dependencies in one call"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(shapes: Vec<WorkflowShape<char>>) -> WorkflowShape<char> {
        WorkflowShape::Chain(shapes)
    }

    fn group(jobs: &str) -> WorkflowShape<char> {
        WorkflowShape::Group(jobs.chars().map(WorkflowShape::Job).collect())
    }

    fn flat(shape: WorkflowShape<char>) -> String {
        let text = |flat: FlatJob<char>| {
            let after: Vec<String> = flat.after.iter().map(ToString::to_string).collect();
            format!("{}:{}", flat.job, after.join("+"))
        };
        flatten(shape).unwrap().into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// Proves T-33, T-34, T-35, G-6.3.
    #[test]
    fn flattens_chains_groups_and_chords() {
        assert_eq!(flat(chain("abc".chars().map(WorkflowShape::Job).collect())), "a: b:0 c:1");
        assert_eq!(flat(group("abc")), "a: b: c:");
        let chord = WorkflowShape::Chord {
            group: "abc".chars().map(WorkflowShape::Job).collect(),
            finally: Box::new(WorkflowShape::Job('f')),
        };
        assert_eq!(flat(chord), "a: b: c: f:0+1+2");
    }

    #[test]
    fn flattens_nested_shapes() {
        assert_eq!(
            flat(chain(vec![WorkflowShape::Job('a'), group("bc"), WorkflowShape::Job('d')])),
            "a: b:0 c:0 d:1+2"
        );
        assert_eq!(flat(chain(vec![group("ab"), group("cd")])), "a: b: c:0+1 d:0+1");
        let inner = chain(vec![WorkflowShape::Job('a'), WorkflowShape::Job('b')]);
        let chord =
            WorkflowShape::Chord { group: vec![inner, WorkflowShape::Job('c')], finally: Box::new(group("xy")) };
        assert_eq!(flat(chain(vec![chord, WorkflowShape::Job('z')])), "a: b:0 c: x:1+2 y:1+2 z:3+4");
    }

    #[test]
    fn refuses_empty_and_too_large_shapes() {
        for empty in [WorkflowShape::Chain(Vec::new()), group(""), chain(vec![WorkflowShape::Job('a'), group("")])] {
            assert_eq!(flatten(empty).unwrap_err().code(), "validation");
        }
        let wide = || WorkflowShape::Group(vec![WorkflowShape::Job('a'); 400]);
        assert_eq!(flatten(chain(vec![wide(), wide()])).unwrap_err().code(), "validation");
        assert_eq!(
            flatten(chain(vec![wide(), WorkflowShape::Group(vec![WorkflowShape::Job('b'); 250])])).unwrap().len(),
            650
        );
    }
}
