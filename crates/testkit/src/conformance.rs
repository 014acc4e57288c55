//! The conformance suite: the behaviour that every store must have.
//!
//! [`conformance!`](crate::conformance!) makes the tests of one store. It needs a function that
//! returns a fresh, empty store in a [`StoreFixture`].
//!
//! The macro makes one `#[test]` for each case below, and the proofs: all scenarios, the transition
//! table and random histories compared with the model, with and without reopens. Cases about
//! durability need [`StoreFixture::reopened_by`] and are skipped without it. After every case the
//! counts are compared with a recount of all jobs, and every index with the records
//! ([`Harness::check`]).

mod admin;
mod claim;
mod concurrency;
mod dag_recovery;
mod dags;
mod dialect;
mod directives;
mod durability;
mod extend;
mod filters;
mod harness;
mod idempotency;
mod inspect;
mod listing;
mod outbox;
mod outbox_recovery;
mod parking;
mod recovery;
mod refusals;
mod retries;
mod settle;
mod settle_and_claim;
mod store_fixture;
mod submit;
mod suites;
mod system;
mod tick;
mod wakeups;
mod workflows;

pub use harness::Harness;
pub use store_fixture::{StoreFixture, clock};
pub use suites::{histories, histories_with_restarts, scenarios, scenarios_with_restarts, transitions};

/// One requirement on a store.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub group: &'static str,
    pub name: &'static str,
    /// Whether it closes and reopens the store.
    pub restarts: bool,
    check: fn(&mut Harness),
}

impl Case {
    /// Runs the case on a fresh store. Returns false if the case needs a reopen and the store is
    /// not durable.
    pub fn run(&self, fixture: StoreFixture) -> bool {
        if self.restarts && !fixture.durable() {
            return false;
        }
        let mut harness = Harness::new(fixture);
        (self.check)(&mut harness);
        harness.check();
        true
    }
}

/// Runs one case by its name, for the tests that [`conformance!`](crate::conformance!) makes.
pub fn run_case(group: &str, name: &str, make: &dyn Fn() -> StoreFixture) {
    let case = cases().into_iter().find(|case| case.group == group && case.name == name);
    if !case.unwrap_or_else(|| panic!("unknown case {group}::{name}")).run(make()) {
        println!("skipped: this store cannot be reopened");
    }
}

/// Passes the list of all cases to another macro. A new case is added here.
#[doc(hidden)]
#[macro_export]
macro_rules! with_conformance_cases {
    ($then:ident $($arguments:tt)*) => {
        $crate::$then! {
            [$($arguments)*]
            submit {
                submitted_job_is_readable
                every_field_round_trips
                batch_results_keep_order
                batch_with_invalid_item_stores_nothing
                batch_size_is_bounded
                batch_refusal_names_all_items
                submit_creates_queue
                batch_items_depend_on_each_other
                submit_children_requires_parent_lease
                submit_max_children_with_finalizer
                payload_size_is_bounded
                external_id_is_unique_in_queue
            }
            idempotency {
                repeated_key_returns_first_job
                key_is_unique_in_scope
                key_repeated_in_batch
                key_expires_with_window
                key_outlives_job_until_window_ends
                unlimited_key_is_deleted_with_job
            }
            claim {
                claim_is_fifo
                claim_follows_priority_if_enabled
                claim_filters_types
                claim_follows_queue_order
                claim_respects_limit
                claim_max_batch
                claim_returns_all_fields
                claim_tokens_are_unique
                claim_skips_paused_queue
                claim_skips_delayed_job
                claim_applies_options
                invalid_claim_is_refused
                claim_reclaims_expired_lease_lazily
            }
            settle {
                outcome_determines_state
                settle_verdicts_keep_order
                repeated_settlement_returns_same_verdict
                stale_token_changes_nothing
                expired_lease_settles_nothing
                job_repeated_in_batch
                settle_max_batch
                settle_propagates_to_dependents
                settle_propagates_in_slices
            }
            settle_and_claim {
                worker_needs_one_call_per_job
                claim_follows_its_settlements
                settlement_verdicts_are_independent
                refused_claim_applies_no_settlement
                undelivered_jobs_return_and_settlements_stand
                settle_and_claim_max_batch
                settle_and_claim_never_waits
            }
            extend {
                heartbeat_extends_lease_from_now
                heartbeat_stores_progress_and_checkpoint
                heartbeat_reports_cancel_request
                heartbeat_verdicts_keep_order
                heartbeat_stops_at_execution_deadline
                heartbeat_max_batch
            }
            tick {
                tick_without_due_jobs
                tick_respects_budget
                tick_processes_every_deadline
                tick_returns_next_deadline
                tick_skips_future_jobs
                tick_prunes_all_records_of_job
            }
            admin {
                put_queue_creates_queue
                put_queue_replaces_settings
                pause_and_resume_queue
                delete_queue_with_live_jobs_requires_force
                delete_queue_runs_in_slices
                delete_queue_lets_running_jobs_finish
                submit_held_job
                cancel_waiting_job
                cancel_running_job_cooperatively
                requeue_in_place
                requeue_as_clone
                requeue_revives_dependents
                dead_letter_job
                run_delayed_job_now
                edit_job
                delete_job
            }
            dialect {
                cancel_failed_job
                change_status_stores_output
                submit_requires_ocypod_queue
                totals_count_transitions
            }
            workflows {
                chain_runs_in_order
                invalid_workflow_stores_nothing
                wide_fan_in_runs_finalizer_once
                open_workflow_accepts_members_until_closed
                retry_revives_members_ended_by_failure
                retry_skips_members_ended_by_outside_jobs
                cancel_workflow
                cancel_and_retry_run_in_slices
                counts_outlive_pruned_members
                repeated_submission_returns_same_workflow
                children_join_parent_workflow
                clone_replaces_original_as_dependency
            }
            retries {
                retry_resets_after_any_dependencies
                retry_skips_dependents_of_deleted_job
                retry_without_effect_is_refused
                retry_during_cooperative_cancel_is_refused
                repeated_growth_adds_members_once
                member_ended_twice_revives_after_both_dependencies
                repeated_growth_refers_to_clone
                member_added_during_cancel_is_not_cancelled
            }
            dags {
                random_small_dags
                random_dag_of_200_nodes
            }
            restarts dag_recovery {
                workflow_continues_after_reopen
                workflow_operation_finishes_after_reopen
                finalizer_runs_once_across_reopen
                random_dags_with_reopen
            }
            refusals {
                every_refusal_changes_nothing
            }
            inspect {
                get_by_id_and_seq
                get_keeps_order
                get_max_batch
                payloads_round_trip
                queues_are_sorted_by_name
                queue_stats_count_by_state
                queue_stats_report_oldest_ready_job
                count_ahead_matches_claim_order
                count_ahead_after_delays_and_releases
                now_follows_clock
            }
            listing {
                list_newest_first_without_duplicates
                list_by_every_filter_combination
                list_pages_are_bounded
                list_cursor_without_job
                list_during_changes_has_no_duplicates
                list_filter_follows_changes
                list_by_tag_key_and_value
                list_by_sparse_filter
            }
            parking {
                submit_grants_parked_claim
                wait_timeout_returns_empty
                abandoned_claim_leases_nothing
                commit_grants_every_matching_claim
                undelivered_grant_restores_job
                hold_keeps_claims_parked
                resume_grants_parked_claims
                random_claims_match_model
            }
            directives {
                held_back_worker_claims_nothing
                held_back_worker_settles_and_heartbeats
                directive_ends_parked_claims
            }
            system {
                records_are_ordered_by_key
                record_changes_by_compare_and_set
                record_and_jobs_are_one_commit
                announced_write_changes_the_version
                one_of_many_writers_wins
            }
            filters {
                list_by_value_filters_combined
                list_by_key_finds_all_jobs
                list_by_external_id_across_queues
                list_by_correlation_id_follows_edits
                list_by_creation_time_range
                list_by_several_states
            }
            wakeups {
                change_is_published_after_commit
                refusal_publishes_nothing
                every_subscriber_receives_changes
                resume_publishes_claimable_queue
                next_deadline_is_published
                unfinished_slices_are_due_now
                lease_expiry_is_published
            }
            concurrency {
                concurrent_submits_share_one_key
                concurrent_submits_share_one_external_id
                concurrent_submits_respect_queue_limit
                concurrent_claims_are_disjoint
                concurrent_settlements_apply_once
                concurrent_cancel_and_complete_have_one_winner
                concurrent_batches_are_atomic
                responses_are_visible_to_all_readers
                concurrent_ticks_process_jobs_once
                random_concurrent_load
            }
            restarts durability {
                jobs_survive_reopen
                payloads_survive_reopen
                tokens_survive_reopen
                repeated_settlement_survives_reopen
                keys_and_external_ids_survive_reopen
                keys_of_deleted_jobs_survive_reopen
                queue_settings_survive_reopen
                deleted_queue_stays_deleted
                counts_survive_reopen
                deleted_jobs_stay_deleted
                sequence_numbers_are_never_reused
                reopen_empty_store
                reopen_many_times
                totals_survive_reopen
                directives_survive_reopen
                system_records_survive_reopen
            }
            outbox {
                callback_is_pending_at_the_end_of_a_job
                every_way_to_end_records_one_delivery
                full_queue_records_a_delivery
                subscriptions_select_deliveries
                each_end_of_a_requeued_job_is_pending
                refused_command_records_nothing
            }
            restarts outbox_recovery {
                deliveries_survive_a_restart_and_the_job
            }
            restarts recovery {
                queue_order_survives_reopen
                priorities_and_types_survive_reopen
                timers_survive_reopen
                deadlines_passed_while_closed_are_processed
                dependencies_survive_reopen
                needed_records_survive_retention
                retention_survives_reopen
                lazily_reclaimable_job_survives_reopen
                propagation_resumes_after_reopen
                queue_deletion_resumes_after_reopen
                revived_and_cloned_jobs_survive_reopen
                filters_survive_reopen
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_list {
    ([] $($first:ident $($second:ident)? { $($name:ident)* })*) => {
        /// Returns all cases, in the order of the list.
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
            check: $group::$name,
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
                $crate::conformance::run_case(stringify!($group), stringify!($name), &super::fixture);
            })*
        }
    };
}

/// Makes the tests of one store, in a module of its own.
///
/// `proofs: path` makes the fixtures of the proofs in another way: there are thousands of them.
///
/// ```
/// use std::sync::Arc;
///
/// use longshore_engine::EngineOptions;
/// use longshore_store::Store;
/// use longshore_testkit::conformance::{self, StoreFixture};
/// use longshore_testkit::memory_store::{Disk, MemoryStore};
///
/// fn memory_fixture() -> StoreFixture {
///     let (clock, disk) = (conformance::clock(), Disk::new(EngineOptions::default()));
///     let store_clock = clock.clone();
///     let open = move || -> Arc<dyn Store> {
///         Arc::new(MemoryStore::open(disk.clone(), store_clock.clone()))
///     };
///     StoreFixture::new(open(), clock).reopened_by(open)
/// }
///
/// mod memory {
///     longshore_testkit::conformance!(super::memory_fixture, histories: 50);
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! conformance {
    ($make:path, histories: $histories:expr) => {
        $crate::conformance!($make, histories: $histories, proofs: $make);
    };
    ($make:path, histories: $histories:expr, proofs: $proofs:path) => {
        fn fixture() -> $crate::conformance::StoreFixture {
            $make()
        }

        $crate::with_conformance_cases!(conformance_tests);

        fn proof_fixture() -> $crate::conformance::StoreFixture {
            $proofs()
        }

        mod proofs {
            use super::proof_fixture as fixture;

            #[test]
            fn every_scenario() {
                $crate::conformance::scenarios(&fixture);
            }

            #[test]
            fn every_scenario_with_restarts() {
                $crate::conformance::scenarios_with_restarts(&fixture);
            }

            #[test]
            fn transition_table() {
                $crate::conformance::transitions(&fixture);
            }

            #[test]
            fn random_histories() {
                $crate::conformance::histories(&fixture, 0..$histories);
            }

            #[test]
            fn random_histories_with_restarts() {
                // Other seeds than without reopens.
                $crate::conformance::histories_with_restarts(&fixture, 1_000_000..1_000_000 + $histories);
            }
        }
    };
}
