//! The conformance suite: what every store must do, whatever is behind it.
//!
//! A store is hooked up with a function that makes a fresh, empty one in a [`World`], and one line:
//!
//! ```ignore
//! fn on_disk() -> World {
//!     let (clock, dir) = (conformance::clock(), tempfile::tempdir().unwrap());
//!     let open = move |path: &Path, clock| -> Arc<dyn Store> { Arc::new(MyStore::open(path, clock).unwrap()) };
//!     World::new(open(dir.path(), clock.clone()), clock.clone()).reopened_by(move || open(dir.path(), clock.clone()))
//! }
//!
//! mod disk {
//!     longshore_testkit::conformance!(super::on_disk, histories: 50);
//! }
//! ```
//!
//! That gives one `#[test]` for each case below, and the proofs: all scenarios, the whole transition table and so many random
//! histories beside the model, plain and with restarts. Cases about durability need [`World::reopened_by`] and pass unplayed without it.
//! After every case the counts are held against a recount of all jobs, and every index against the records ([`Harness::check`]).

mod admin;
mod claim;
mod concurrency;
mod dag_recovery;
mod dags;
mod dialect;
mod durability;
mod extend;
mod filters;
mod harness;
mod idempotency;
mod inspect;
mod listing;
mod parking;
mod recovery;
mod refusals;
mod retries;
mod settle;
mod store_fixture;
mod submit;
mod suites;
mod tick;
mod wakeups;
mod workflows;

pub use harness::Harness;
pub use store_fixture::{StoreFixture, clock};
pub use suites::{histories, histories_with_restarts, scenarios, scenarios_with_restarts, transitions};

/// One demand on a store.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub group: &'static str,
    pub name: &'static str,
    /// Whether it closes the store and opens it again.
    pub restarts: bool,
    run: fn(&mut Harness),
}

impl Case {
    /// Plays it on a fresh store. `false`: it could not be played, because the store cannot be opened again.
    pub fn play(&self, world: StoreFixture) -> bool {
        if self.restarts && !world.durable() {
            return false;
        }
        let mut harness = Harness::new(world);
        (self.run)(&mut harness);
        harness.check();
        true
    }
}

/// Plays one case by its names: what the tests made by [`conformance!`](crate::conformance!) do.
pub fn play(group: &str, name: &str, make: &dyn Fn() -> StoreFixture) {
    let case = cases().into_iter().find(|case| case.group == group && case.name == name);
    if !case.unwrap_or_else(|| panic!("there is no case {group}::{name}")).play(make()) {
        println!("not played: this store cannot be opened again");
    }
}

/// The list of all cases, handed to another macro: the one place where a case is entered.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_cases {
    ($then:ident $($arguments:tt)*) => {
        $crate::$then! {
            [$($arguments)*]
            submit {
                a_job_is_there_when_it_is_answered
                every_field_comes_back
                a_batch_is_answered_in_the_order_given
                a_batch_with_a_bad_member_leaves_nothing_behind
                batches_have_at_least_one_and_at_most_a_thousand_jobs
                a_thousand_bad_members_are_all_named
                a_submission_makes_its_queue
                members_of_a_batch_depend_on_each_other
                children_are_fenced_by_the_lease_of_their_parent
                a_thousand_children_and_a_finalizer
                payloads_from_nothing_to_the_limit
                an_external_id_is_used_once_in_a_queue
            }
            idempotency {
                a_key_gives_the_first_job_again
                a_key_is_unique_in_its_scope
                a_key_twice_in_one_batch
                a_key_is_free_when_its_window_ends
                a_key_outlives_its_job_until_its_window_ends
                a_key_for_ever_goes_with_its_job
            }
            claim {
                first_in_first_out
                urgent_jobs_first_where_the_queue_says_so
                only_the_types_asked_for
                queues_are_served_in_the_order_given
                never_more_than_asked_for
                a_thousand_at_once
                the_worker_gets_everything_it_needs
                every_claim_has_a_token_of_its_own
                a_paused_queue_gives_nothing
                a_job_is_not_given_before_its_time
                terms_are_kept
                bad_claims_are_refused
                a_lazily_reclaimed_job_is_taken_over
            }
            settle {
                each_outcome_leads_to_its_state
                verdicts_come_in_order
                a_settlement_repeated_is_answered_again
                a_stale_token_changes_nothing
                an_expired_lease_settles_nothing
                one_job_twice_in_a_batch
                a_thousand_at_once
                dependents_hear_of_the_end
                a_thousand_and_more_dependents
            }
            extend {
                the_lease_grows_from_now
                notes_are_kept
                a_worker_hears_that_it_should_stop
                verdicts_come_in_order
                not_past_the_deadline
                a_thousand_at_once
            }
            tick {
                nothing_to_do
                no_more_than_its_budget
                everything_that_falls_due
                the_next_instant_is_not_missed
                only_what_is_due
                retention_removes_all_of_a_job
            }
            admin {
                a_queue_is_put
                settings_are_replaced_or_kept
                pause_and_resume
                a_queue_with_living_jobs_is_deleted_by_force_only
                a_long_queue_is_cleared_in_slices
                letting_running_jobs_finish
                a_held_job_is_submitted
                a_waiting_job_is_cancelled
                a_running_job_is_asked_to_stop
                requeued_in_place
                requeued_as_a_clone
                a_requeue_revives_dependents
                dead_lettered_by_hand
                run_now
                edited
                deleted
            }
            dialect {
                a_failed_job_is_cancelled
                output_is_kept
                only_into_a_queue_of_the_profile
                totals_count_what_happened
            }
            workflows {
                a_chain_runs_in_order_and_completes
                all_of_it_or_nothing
                a_thousand_wide_fan_in_runs_its_finalizer_once
                an_open_one_grows_until_it_is_closed
                a_failure_stops_what_waits_and_a_retry_brings_it_back
                a_retry_leaves_what_others_have_stopped
                cancelled_as_a_whole
                a_large_one_is_cancelled_and_retried_in_slices
                records_go_and_the_sums_stay
                submitted_twice_it_is_one
                children_join_their_parents_workflow
                a_clone_is_waited_for_in_its_originals_place
            }
            retries {
                any_end_is_awaited_anew
                what_a_lost_job_has_stopped_stays_ended
                a_retry_that_can_do_nothing_is_refused
                no_retry_while_a_worker_is_being_told
                growing_twice_is_growing_once
                who_is_stopped_twice_comes_back_once_both_live
                growing_again_means_the_clone
                whoever_joins_a_cancel_is_not_concerned
            }
            dags {
                small_ones_in_a_storm
                two_hundred_nodes_in_a_storm
            }
            restarts dag_recovery {
                a_workflow_goes_on_where_it_was
                what_was_being_done_to_all_is_finished
                the_finalizer_of_a_chord_runs_once
                storms_with_restarts
            }
            refusals {
                every_code_can_be_reached_and_changes_nothing
            }
            inspect {
                by_id_and_by_number
                answers_stand_where_the_questions_stood
                a_thousand_at_once
                payloads_come_back_untouched
                queues_by_name
                a_report_counts_by_state
                first_in_line_since
                how_many_stand_before
                how_many_stand_before_those_who_came_later
                the_time_of_the_store
            }
            listing {
                newest_first_and_each_job_once
                every_filter_and_every_combination
                pages_are_bounded_and_end
                a_cursor_need_not_be_a_job
                changes_between_pages_show_no_job_twice
                a_filter_follows_what_changes
                tags_are_found_by_key_and_by_value
                a_sparse_filter_over_many_jobs
            }
            parking {
                a_submission_is_granted_to_the_claim_that_waits
                a_wait_that_ends_is_answered_empty
                a_claim_whose_caller_is_gone_leases_nothing
                no_claim_sleeps_beside_a_job_of_the_same_commit
                an_undelivered_grant_costs_the_job_nothing
                a_hold_keeps_claims_parked
                a_resumed_queue_serves_all_that_wait
                random_rounds
            }
            filters {
                every_filter_by_value_and_every_combination
                a_key_lists_every_job_that_was_created_with_it
                an_external_id_lists_one_job_of_each_queue
                a_correlation_id_follows_edits_and_clones
                a_range_of_creation_times
                several_states_at_once
            }
            wakeups {
                a_change_is_told_after_it_is_there
                what_is_refused_is_not_told
                everybody_listening_is_told
                a_resumed_queue_may_have_work
                the_next_deadline_is_announced
                what_is_done_in_slices_is_due_at_once
                an_expired_lease_is_told
            }
            concurrency {
                one_key_and_sixty_four_submitters
                one_external_id_and_many_submitters
                a_bound_on_waiting_jobs_holds
                claimers_never_share_a_job
                one_token_has_one_effect
                one_end_for_cancel_and_complete
                batches_are_whole
                what_was_answered_is_seen_by_everybody
                ticks_side_by_side
                a_storm
            }
            restarts durability {
                everything_is_as_it_was
                payloads_of_all_sizes
                tokens_still_hold
                a_settlement_repeated_is_still_known
                keys_and_external_ids_are_still_taken
                keys_without_a_job_are_still_known
                queues_settings_and_pauses
                a_deleted_queue_stays_deleted
                counts_are_as_they_were
                what_was_deleted_stays_deleted
                numbers_are_never_given_twice
                an_empty_store
                many_restarts
                totals_of_the_dialect
            }
            restarts recovery {
                places_in_line
                priorities_and_types
                timers_go_on
                what_fell_due_while_it_was_closed
                dependents_wait_on
                a_record_that_is_needed_stays
                retention_goes_on
                a_lazily_expired_lease_is_offered_again
                news_that_was_not_all_told
                a_queue_that_was_not_cleared
                revived_and_cloned
                every_filter_after_a_restart
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ([] $($first:ident $($second:ident)? { $($name:ident)* })*) => {
        /// All cases, in the order of the list.
        pub fn cases() -> Vec<Case> {
            let mut cases = Vec::new();
            $($crate::conformance_list!(@group cases $first $($second)? { $($name)* });)*
            cases
        }
    };
    (@group $cases:ident restarts $group:ident { $($name:ident)* }) => {
        $crate::conformance_list!(@add $cases $group true { $($name)* });
    };
    (@group $cases:ident $group:ident { $($name:ident)* }) => {
        $crate::conformance_list!(@add $cases $group false { $($name)* });
    };
    (@add $cases:ident $group:ident $restarts:literal { $($name:ident)* }) => {
        $cases.extend([$(Case {
            group: stringify!($group),
            name: stringify!($name),
            restarts: $restarts,
            run: $group::$name,
        }),*]);
    };
}

with_conformance_cases!(conformance_list);

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ([] $($first:ident $($second:ident)? { $($name:ident)* })*) => {
        $($crate::conformance_tests!(@group $first $($second)? { $($name)* });)*
    };
    (@group restarts $group:ident { $($name:ident)* }) => {
        $crate::conformance_tests!(@group $group { $($name)* });
    };
    (@group $group:ident { $($name:ident)* }) => {
        mod $group {
            $(#[test]
            fn $name() {
                $crate::conformance::play(stringify!($group), stringify!($name), &super::world);
            })*
        }
    };
}

/// Writes the tests of one store: `conformance!(path::to::make_world, histories: 100);` where `fn make_world() -> World`. Each store in a
/// module of its own. `proofs: path` makes the worlds of the proofs otherwise: there are thousands.
#[macro_export]
macro_rules! conformance {
    ($make:path, histories: $histories:expr) => {
        $crate::conformance!($make, histories: $histories, proofs: $make);
    };
    ($make:path, histories: $histories:expr, proofs: $proofs:path) => {
        fn world() -> $crate::conformance::StoreFixture {
            $make()
        }

        $crate::with_conformance_cases!(conformance_tests);

        fn proof_world() -> $crate::conformance::StoreFixture {
            $proofs()
        }

        mod proofs {
            use super::proof_world as world;

            #[test]
            fn every_scenario() {
                $crate::conformance::scenarios(&world);
            }

            #[test]
            fn every_scenario_with_restarts() {
                $crate::conformance::scenarios_with_restarts(&world);
            }

            #[test]
            fn the_whole_transition_table() {
                $crate::conformance::transitions(&world);
            }

            #[test]
            fn random_histories() {
                $crate::conformance::histories(&world, 0..$histories);
            }

            #[test]
            fn random_histories_with_restarts() {
                // Others than the plain ones.
                $crate::conformance::histories_with_restarts(&world, 1_000_000..1_000_000 + $histories);
            }
        }
    };
}
