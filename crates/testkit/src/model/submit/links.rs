//! Dependencies of the items of a batch, resolved to jobs and to items.

use super::super::Model;
use super::super::rules::Refusal;
use super::super::workflows::distinct;
use super::{Batch, ItemOutcome, Link, Links, MOST_DEPENDENCIES};
use crate::target::Dependency;

impl Model {
    /// Resolves the dependencies of an item to jobs and to items of the batch.
    pub(super) fn resolve_links(&self, batch: &Batch, index: usize) -> Result<Links, Refusal> {
        let member = batch.members[index];
        let waits_for_all = batch.circumstances.last_is_finally && index + 1 == batch.members.len();
        // Dependencies as they were given, before clones replace originals.
        let given = distinct(&member.after) + distinct(&member.after_any) + if waits_for_all { index } else { 0 };
        if given > MOST_DEPENDENCIES {
            return Err("dependency_breadth");
        }
        let mut links = Links::default();
        for (given, resolved) in [(&member.after, &mut links.after), (&member.after_any, &mut links.after_any)] {
            for dependency in given {
                push_once(resolved, self.resolve(batch, dependency)?);
            }
        }
        if waits_for_all {
            for child in 0..index {
                push_once(&mut links.after, resolve_member(batch, child)?);
            }
        }
        Ok(links)
    }

    fn resolve(&self, batch: &Batch, dependency: &Dependency) -> Result<Link, Refusal> {
        const UNKNOWN: Refusal = "dependency_unknown";
        match dependency {
            Dependency::Unknown => Err(UNKNOWN),
            Dependency::Job(handle) => {
                let known = self.jobs.get(*handle).is_some_and(|job| !job.removed);
                if known { Ok(Link::Job(*handle)) } else { Err(UNKNOWN) }
            }
            Dependency::Ref(name) => {
                let named = batch.members.iter().position(|member| member.reference.as_ref() == Some(name));
                match named {
                    Some(member) => resolve_member(batch, member),
                    None => {
                        let earlier = self.member_named(batch.circumstances.workflow, name).ok_or(UNKNOWN)?;
                        if self.jobs[earlier].removed { Err(UNKNOWN) } else { Ok(Link::Job(earlier)) }
                    }
                }
            }
        }
    }
}

fn push_once(links: &mut Vec<Link>, link: Link) {
    if !links.contains(&link) {
        links.push(link);
    }
}

fn resolve_member(batch: &Batch, index: usize) -> Result<Link, Refusal> {
    match batch.fates[index] {
        ItemOutcome::New => Ok(Link::Member(index)),
        ItemOutcome::SameAs(other) => Ok(Link::Member(other)),
        ItemOutcome::Existing(Some(handle)) => Ok(Link::Job(handle)),
        ItemOutcome::Existing(None) => Err("dependency_unknown"),
    }
}

/// Whether an item depends on itself, through others of the batch.
pub(super) fn reaches_itself(batch: &Batch, start: usize) -> bool {
    let mut seen = vec![false; batch.members.len()];
    let mut open = vec![start];
    while let Some(index) = open.pop() {
        let Ok(links) = &batch.links[index] else { continue };
        for link in links.all() {
            let Link::Member(other) = link else { continue };
            if other == start {
                return true;
            }
            if !seen[other] {
                seen[other] = true;
                open.push(other);
            }
        }
    }
    false
}
