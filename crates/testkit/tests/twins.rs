//! Every file-call behaviour, plain and preloaded. The programs and what each is for: `twins/*.c`.

/// Programs that mount, or change their root.
const NEED_ROOT: [&str; 2] = ["another_mount", "another_root"];

macro_rules! twins {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let name = stringify!($name);
                let needs_root = NEED_ROOT.contains(&name);
                if needs_root && tidelock_servers::skip::unless_root("a mount or a root") {
                    return;
                }
                if let Err(error) = tidelock_testkit::twins::check(name) {
                    panic!("{error}");
                }
            }
        )*

        /// A source without a test would never run.
        #[test]
        fn every_program_is_in_the_list() {
            let listed = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(tidelock_testkit::twins::source_dir()).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let program = name.strip_suffix(".c").filter(|name| !name.ends_with("_library"));
                let of = program.or_else(|| name.strip_suffix(".refused"));
                assert!(of.is_none_or(|of| listed.contains(&of)), "{name} is run by no test");
            }
        }
    };
}

twins! {
    a_file_of_another_user
    access_mode_is_kept
    advice_and_sync
    another_mount
    another_protected_directory
    another_root
    append_after_fork
    append_from_eight_processes
    append_ignores_the_offset
    append_switched_by_fcntl
    append_to_what_is_sealed
    at_calls_with_a_directory
    attributes_through_descriptors
    bad_addresses
    chdir_then_relative
    children_are_started
    children_inherit_a_descriptor
    children_read_sealed_bytes
    clone_shares_memory_only
    clone_shares_the_offset
    close_range_and_closefrom
    constructor_does_io
    copies_fall_back
    descriptors_are_passed
    descriptors_run_out
    direct_and_synchronous
    dots_in_paths
    dup2_replaces_an_open_file
    dup_shares_the_offset
    errno_is_kept
    fast_path
    fallocate_keeps_bytes
    files_that_libc_opens_itself
    fork_beside_opens
    fork_shares_the_offset
    fts_goes_into_directories
    fortified_calls
    fortified_calls_narrow
    ftruncate_at_every_edge
    hard_links
    holes_read_as_zeros
    io_uring_and_libaio
    libaio_one_by_one
    libaio_requests
    linked_through_proc
    listings_hide_the_keyring
    locks_over_exec
    login_takes_the_terminal
    map_private
    map_private_advice
    map_private_changed
    map_shared
    moves_by_what_is_moved
    names_for_the_unnamed
    names_of_descriptors
    messages_and_descriptor_2
    open_file_locks
    open_flags_and_errors
    opening_is_no_access
    other_names_of_libc
    pages_by_one_call
    partial_blocks_write_only
    pipes_with_names
    poll_select_epoll
    random_calls_against_a_model
    random_stdio_against_a_model
    raw_calls_by_number
    raw_stat_calls
    raw_system_calls
    record_locks
    rename_over
    reopened_through_proc
    seek_beside_a_read
    seek_data_and_hole
    seek_past_the_end
    seek_to_the_end_beside_a_writer
    signal_storm_on_odd_sizes
    signal_storm_on_pages
    small_files_by_few_calls
    small_stacks
    small_stacks_of_two_threads
    stat_family_tells_plain_sizes
    stat_of_old_programs
    stdio_buffers
    stdio_formatted_and_lines
    stdio_modes
    stdio_reopened
    stdio_reopened_from_outside
    stdio_seek_and_pushback
    stdio_standard_output
    stdio_wide
    stdio_wide_fails
    symlinks_are_resolved
    system_calls_by_instruction
    symlinks_lead_out
    temporary_files
    temporary_unnamed
    thousands_of_files
    threads_keep_one_table
    threads_on_one_file
    threads_with_files_of_their_own
    threads_write_directly
    truncate_by_path
    truncated_while_another_holds_it
    unlink_while_open
    vectors
    vectors_with_flags
}
