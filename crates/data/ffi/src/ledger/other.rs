//! Functions and variables of libc that are no file calls: they take no descriptor, path or FILE,
//! and open only files that the system or the environment chose, to read them.
//!
//! Each by its name, for every glibc from 2.28 on, so that a new one is seen. tests/ledger.rs looks
//! for file calls among them in the C headers and in libc's own code.

mod libm;

use libm::LIBM;

/// True if the symbol of libc has nothing to do with files.
#[must_use]
pub fn is_no_file_call(name: &str) -> bool {
    name.starts_with(VECTORS) || words(LIBC).chain(words(LIBM)).any(|one| one == name)
}

fn words(groups: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    groups.iter().flat_map(|group| group.split_ascii_whitespace())
}

/// libmvec: functions of libm on vectors, by the rule of the x86-64 vector function ABI.
const VECTORS: &str = "_ZGV";

const LIBC: &[&str] = &[
    // Memory and strings.
    "__argz_count __argz_next __argz_stringify __bzero __explicit_bzero_chk __ffs
     __memalign_hook __memcmpeq __memcpy_chk __memmove_chk __mempcpy __mempcpy_chk
     __mempcpy_small __memset_chk __memset_explicit_chk __obstack_printf_chk
     __obstack_vprintf_chk __rawmemchr __stpcpy __stpcpy_chk __stpcpy_small __stpncpy
     __stpncpy_chk __strcasecmp __strcasecmp_l __strcasestr __strcat_chk __strcoll_l
     __strcpy_chk __strcpy_small __strcspn_c1 __strcspn_c2 __strcspn_c3 __strdup __strerror_r
     __strfmon_l __strftime_l __strlcat_chk __strlcpy_chk __strncasecmp_l __strncat_chk
     __strncpy_chk __strndup __strpbrk_c2 __strpbrk_c3 __strsep_1c __strsep_2c __strsep_3c
     __strsep_g __strspn_c1 __strspn_c2 __strspn_c3 __strtod_internal __strtod_l __strtod_nan
     __strtof128_internal __strtof128_nan __strtof_internal __strtof_l __strtof_nan __strtok_r
     __strtok_r_1c __strtol_internal __strtol_l __strtold_internal __strtold_l __strtold_nan
     __strtoll_internal __strtoll_l __strtoul_internal __strtoul_l __strtoull_internal
     __strtoull_l __strverscmp __strxfrm_l __tdelete __tfind __tsearch __twalk __twalk_r
     __wcpcpy_chk __wcpncpy_chk __wcscasecmp_l __wcscat_chk __wcscoll_l __wcscpy_chk
     __wcsftime_l __wcslcat_chk __wcslcpy_chk __wcsncasecmp_l __wcsncat_chk __wcsncpy_chk
     __wcsnrtombs_chk __wcsrtombs_chk __wcstod_internal __wcstod_l __wcstof128_internal
     __wcstof_internal __wcstof_l __wcstol_internal __wcstol_l __wcstold_internal __wcstold_l
     __wcstoll_internal __wcstoll_l __wcstombs_chk __wcstoul_internal __wcstoul_l
     __wcstoull_internal __wcstoull_l __wcsxfrm_l __wmemcpy_chk __wmemmove_chk __wmempcpy_chk
     __wmemset_chk __xpg_basename _obstack _obstack_allocated_p _obstack_begin _obstack_begin_1
     _obstack_free _obstack_memory_used _obstack_newchunk advance argz_add argz_add_sep
     argz_append argz_count argz_create argz_create_sep argz_delete argz_extract argz_insert
     argz_next argz_replace argz_stringify basename bcmp bcopy bsearch bzero dirname envz_add
     envz_entry envz_get envz_merge envz_remove envz_strip explicit_bzero ffs ffsl ffsll
     fnmatch getsubopt glob_pattern_p hcreate hcreate_r hdestroy hdestroy_r hsearch hsearch_r
     index insque lfind loc1 loc2 locs lsearch memalign memccpy memchr memcmp memcpy memfrob
     memmem memmove mempcpy memrchr memset memset_explicit obstack_alloc_failed_handler
     obstack_exit_failure obstack_free obstack_printf obstack_vprintf qsort qsort_r rawmemchr
     re_comp re_compile_fastmap re_compile_pattern re_exec re_match re_match_2 re_max_failures
     re_search re_search_2 re_set_registers re_set_syntax re_syntax_options regcomp regerror
     regexec regfree remque rindex stdc_bit_ceil_uc stdc_bit_ceil_ui stdc_bit_ceil_ul
     stdc_bit_ceil_ull stdc_bit_ceil_us stdc_bit_floor_uc stdc_bit_floor_ui stdc_bit_floor_ul
     stdc_bit_floor_ull stdc_bit_floor_us stdc_bit_width_uc stdc_bit_width_ui stdc_bit_width_ul
     stdc_bit_width_ull stdc_bit_width_us stdc_count_ones_uc stdc_count_ones_ui
     stdc_count_ones_ul stdc_count_ones_ull stdc_count_ones_us stdc_count_zeros_uc
     stdc_count_zeros_ui stdc_count_zeros_ul stdc_count_zeros_ull stdc_count_zeros_us
     stdc_first_leading_one_uc stdc_first_leading_one_ui stdc_first_leading_one_ul
     stdc_first_leading_one_ull stdc_first_leading_one_us stdc_first_leading_zero_uc
     stdc_first_leading_zero_ui stdc_first_leading_zero_ul stdc_first_leading_zero_ull
     stdc_first_leading_zero_us stdc_first_trailing_one_uc stdc_first_trailing_one_ui
     stdc_first_trailing_one_ul stdc_first_trailing_one_ull stdc_first_trailing_one_us
     stdc_first_trailing_zero_uc stdc_first_trailing_zero_ui stdc_first_trailing_zero_ul
     stdc_first_trailing_zero_ull stdc_first_trailing_zero_us stdc_has_single_bit_uc
     stdc_has_single_bit_ui stdc_has_single_bit_ul stdc_has_single_bit_ull
     stdc_has_single_bit_us stdc_leading_ones_uc stdc_leading_ones_ui stdc_leading_ones_ul
     stdc_leading_ones_ull stdc_leading_ones_us stdc_leading_zeros_uc stdc_leading_zeros_ui
     stdc_leading_zeros_ul stdc_leading_zeros_ull stdc_leading_zeros_us stdc_trailing_ones_uc
     stdc_trailing_ones_ui stdc_trailing_ones_ul stdc_trailing_ones_ull stdc_trailing_ones_us
     stdc_trailing_zeros_uc stdc_trailing_zeros_ui stdc_trailing_zeros_ul
     stdc_trailing_zeros_ull stdc_trailing_zeros_us step stpcpy stpncpy strcasecmp strcasecmp_l
     strcasestr strcat strchr strchrnul strcmp strcoll strcoll_l strcpy strcspn strdup strerror
     strerror_l strerror_r strerrordesc_np strerrorname_np strfmon strfmon_l strfromd strfromf
     strfromf128 strfromf32 strfromf32x strfromf64 strfromf64x strfroml strfry strftime
     strftime_l strlcat strlcpy strlen strncasecmp strncasecmp_l strncat strncmp strncpy
     strndup strnlen strpbrk strptime strptime_l strrchr strsep strsignal strspn strstr strtod
     strtod_l strtof strtof128 strtof128_l strtof32 strtof32_l strtof32x strtof32x_l strtof64
     strtof64_l strtof64x strtof64x_l strtof_l strtoimax strtok strtok_r strtol strtol_l
     strtold strtold_l strtoll strtoll_l strtoq strtoul strtoul_l strtoull strtoull_l strtoumax
     strtouq strverscmp strxfrm strxfrm_l swab tdelete tdestroy tfind tsearch twalk twalk_r
     wcpcpy wcpncpy wcscasecmp wcscasecmp_l wcscat wcschr wcschrnul wcscmp wcscoll wcscoll_l
     wcscpy wcscspn wcsdup wcsftime wcsftime_l wcslcat wcslcpy wcslen wcsncasecmp wcsncasecmp_l
     wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcspbrk wcsrchr wcsrtombs wcsspn wcsstr wcstod
     wcstod_l wcstof wcstof128 wcstof128_l wcstof32 wcstof32_l wcstof32x wcstof32x_l wcstof64
     wcstof64_l wcstof64x wcstof64x_l wcstof_l wcstoimax wcstok wcstol wcstol_l wcstold
     wcstold_l wcstoll wcstoll_l wcstombs wcstoq wcstoul wcstoul_l wcstoull wcstoull_l
     wcstoumax wcstouq wcswcs wcswidth wcsxfrm wcsxfrm_l wmemchr wmemcmp wmemcpy wmemmove
     wmempcpy wmemset",
    // Characters, numbers and time.
    "__adjtimex __clock_getcpuclockid __clock_getres __clock_gettime __clock_gettime64
     __clock_nanosleep __clock_settime __ctype32_b __ctype32_tolower __ctype32_toupper
     __ctype_b __ctype_b_loc __ctype_get_mb_cur_max __ctype_init __ctype_tolower
     __ctype_tolower_loc __ctype_toupper __ctype_toupper_loc __daylight __finite __finitef
     __finitel __gettimeofday __gmtime_r __isalnum_l __isalpha_l __isascii_l __isblank_l
     __iscntrl_l __isctype __isdigit_l __isgraph_l __isinf __isinff __isinfl __islower_l
     __isnan __isnanf __isnanf128 __isnanl __isoc23_strtoimax __isoc23_strtol __isoc23_strtol_l
     __isoc23_strtoll __isoc23_strtoll_l __isoc23_strtoul __isoc23_strtoul_l __isoc23_strtoull
     __isoc23_strtoull_l __isoc23_strtoumax __isoc23_wcstoimax __isoc23_wcstol
     __isoc23_wcstol_l __isoc23_wcstoll __isoc23_wcstoll_l __isoc23_wcstoul __isoc23_wcstoul_l
     __isoc23_wcstoull __isoc23_wcstoull_l __isoc23_wcstoumax __isprint_l __ispunct_l
     __isspace_l __isupper_l __iswalnum_l __iswalpha_l __iswblank_l __iswcntrl_l __iswctype
     __iswctype_l __iswdigit_l __iswgraph_l __iswlower_l __iswprint_l __iswpunct_l __iswspace_l
     __iswupper_l __iswxdigit_l __isxdigit_l __mbrlen __mbrtowc __mbsnrtowcs_chk
     __mbsrtowcs_chk __mbstowcs_chk __nanosleep __nanosleep_nocancel __printf_fp __signbit
     __signbitf __signbitl __signgam __timezone __toascii_l __tolower_l __toupper_l __towctrans
     __towctrans_l __towlower_l __towupper_l __tzname __wcrtomb_chk __wctomb_chk __wctrans_l
     __wctype_l _tolower _toupper a64l abs adjtime adjtimex arc4random arc4random_buf
     arc4random_uniform asctime asctime_r atof atoi atol atoll btowc c16rtomb c32rtomb c8rtomb
     clock clock_adjtime clock_getcpuclockid clock_getres clock_gettime clock_nanosleep
     clock_settime copysign copysignf copysignl ctime ctime_r daylight difftime div drand48
     drand48_r dysize ecvt ecvt_r erand48 erand48_r fcvt fcvt_r finite finitef finitel frexp
     frexpf frexpl ftime gcvt getentropy getrandom gettimeofday gmtime gmtime_r imaxabs imaxdiv
     initstate initstate_r isalnum isalnum_l isalpha isalpha_l isascii isblank isblank_l
     iscntrl iscntrl_l isctype isdigit isdigit_l isgraph isgraph_l isinf isinff isinfl islower
     islower_l isnan isnanf isnanl isprint isprint_l ispunct ispunct_l isspace isspace_l
     isupper isupper_l iswalnum iswalnum_l iswalpha iswalpha_l iswblank iswblank_l iswcntrl
     iswcntrl_l iswctype iswctype_l iswdigit iswdigit_l iswgraph iswgraph_l iswlower iswlower_l
     iswprint iswprint_l iswpunct iswpunct_l iswspace iswspace_l iswupper iswupper_l iswxdigit
     iswxdigit_l isxdigit isxdigit_l jrand48 jrand48_r l64a labs lcong48 lcong48_r ldexp ldexpf
     ldexpl ldiv llabs lldiv localtime localtime_r lrand48 lrand48_r mblen mbrlen mbrtoc16
     mbrtoc32 mbrtoc8 mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc mktime modf modff
     modfl mrand48 mrand48_r nanosleep nrand48 nrand48_r ntp_adjtime ntp_gettime ntp_gettimex
     qecvt qecvt_r qfcvt qfcvt_r qgcvt rand rand_r random random_r rpmatch scalbn scalbnf
     scalbnl seed48 seed48_r setstate setstate_r settimeofday signgam sleep srand srand48
     srand48_r srandom srandom_r stime time timegm timelocal timer_create timer_delete
     timer_getoverrun timer_gettime timer_settime times timespec_get timespec_getres timezone
     toascii tolower tolower_l toupper toupper_l towctrans towctrans_l towlower towlower_l
     towupper towupper_l tzname tzset uabs uimaxabs ulabs ullabs umaxabs usleep wcrtomb wctob
     wctomb wctrans wctrans_l wctype wctype_l wcwidth",
    // Printing and scanning of memory.
    "_IO_sprintf _IO_sscanf _IO_vsprintf __asprintf __asprintf_chk __isoc23_sscanf
     __isoc23_swscanf __isoc23_vsscanf __isoc23_vswscanf __isoc99_sscanf __isoc99_swscanf
     __isoc99_vsscanf __isoc99_vswscanf __snprintf __snprintf_chk __sprintf_chk __swprintf_chk
     __vasprintf_chk __vsnprintf __vsnprintf_chk __vsprintf_chk __vsscanf __vswprintf_chk
     asprintf parse_printf_format printf_size_info register_printf_function
     register_printf_modifier register_printf_specifier register_printf_type snprintf sprintf
     sscanf swprintf swscanf vasprintf vsnprintf vsprintf vsscanf vswprintf vswscanf",
    // Threads, signals and processes.
    "___pthread_self __abort_msg __arch_prctl __bsd_getpgrp __call_tls_dtors __cthread_detach
     __cthread_fork __cthread_getspecific __cthread_keycreate __cthread_setspecific
     __cxa_at_quick_exit __cxa_atexit __cxa_finalize __cxa_thread_atexit_impl
     __futex_abstimed_wait64 __futex_abstimed_wait_cancelable64 __getgroups_chk __getpagesize
     __getpgid __getpid __libpthread_freeres __libpthread_version_placeholder
     __lll_lock_wait_private __lll_lock_wake_private __longjmp_chk __nptl_change_stack_perm
     __nptl_create_event __nptl_death_event __nptl_initial_report_events __nptl_last_event
     __nptl_nthreads __nptl_rtld_global __nptl_set_robust_list_avail __nptl_threads_events
     __nptl_version __pause_nocancel __pthread_attr_copy __pthread_attr_destroy
     __pthread_attr_getstack __pthread_attr_getstackaddr __pthread_attr_getstacksize
     __pthread_attr_init __pthread_attr_setaffinity_np __pthread_attr_setsigmask_internal
     __pthread_attr_setstack __pthread_attr_setstackaddr __pthread_attr_setstacksize
     __pthread_barrier_init __pthread_barrier_wait __pthread_block __pthread_block_intr
     __pthread_cleanup_routine __pthread_cleanup_stack __pthread_clock_gettime
     __pthread_clock_settime __pthread_cond_broadcast __pthread_cond_clockwait
     __pthread_cond_destroy __pthread_cond_init __pthread_cond_signal __pthread_cond_timedwait
     __pthread_cond_wait __pthread_condattr_init __pthread_create __pthread_default_attr
     __pthread_default_condattr __pthread_destroy_specific __pthread_detach
     __pthread_disable_asynccancel __pthread_enable_asynccancel __pthread_get_minstack
     __pthread_getattr_default_np __pthread_getattr_np __pthread_getspecific
     __pthread_init_thread __pthread_initialize_minimal __pthread_key_create
     __pthread_key_delete __pthread_keys __pthread_mutex_checklocked __pthread_mutex_destroy
     __pthread_mutex_init __pthread_mutex_lock __pthread_mutex_timedlock
     __pthread_mutex_trylock __pthread_mutex_unlock __pthread_mutexattr_destroy
     __pthread_mutexattr_init __pthread_mutexattr_settype __pthread_once
     __pthread_register_cancel __pthread_register_cancel_defer __pthread_rwlock_destroy
     __pthread_rwlock_init __pthread_rwlock_rdlock __pthread_rwlock_tryrdlock
     __pthread_rwlock_trywrlock __pthread_rwlock_unlock __pthread_rwlock_wrlock
     __pthread_setcancelstate __pthread_setspecific __pthread_sigmask __pthread_sigstate
     __pthread_sigstate_destroy __pthread_threads __pthread_timedblock
     __pthread_timedblock_intr __pthread_total __pthread_unregister_cancel
     __pthread_unregister_cancel_restore __pthread_unwind __pthread_unwind_next
     __pthread_wakeup __rseq_flags __rseq_offset __rseq_size __sched_cpualloc __sched_cpucount
     __sched_cpufree __sched_get_priority_max __sched_get_priority_min __sched_getparam
     __sched_getscheduler __sched_setscheduler __sched_yield __setpgid __sigaction __sigaddset
     __sigdelset __sigismember __sigpause __sigsetjmp __sigsuspend __sigtimedwait
     __syscall_rt_sigqueueinfo __sysv_signal __wait __waitpid _exit _longjmp
     _pthread_cleanup_pop _pthread_cleanup_pop_restore _pthread_cleanup_push
     _pthread_cleanup_push_defer _pthread_mutex_lock _pthread_mutex_trylock
     _pthread_mutex_unlock _pthread_rwlock_destroy _pthread_rwlock_init _setjmp
     _thread_db___nptl_last_event _thread_db___nptl_nthreads _thread_db___nptl_rtld_global
     _thread_db___pthread_keys _thread_db_const_thread_area _thread_db_dtv_dtv
     _thread_db_dtv_slotinfo_gen _thread_db_dtv_slotinfo_list_len
     _thread_db_dtv_slotinfo_list_next _thread_db_dtv_slotinfo_list_slotinfo
     _thread_db_dtv_slotinfo_map _thread_db_dtv_t_counter _thread_db_dtv_t_pointer_val
     _thread_db_link_map_l_tls_modid _thread_db_link_map_l_tls_offset _thread_db_list_t_next
     _thread_db_list_t_prev _thread_db_pthread_cancelhandling _thread_db_pthread_dtvp
     _thread_db_pthread_eventbuf _thread_db_pthread_eventbuf_eventmask
     _thread_db_pthread_eventbuf_eventmask_event_bits _thread_db_pthread_key_data_data
     _thread_db_pthread_key_data_level2_data _thread_db_pthread_key_data_seq
     _thread_db_pthread_key_struct_destr _thread_db_pthread_key_struct_seq
     _thread_db_pthread_list _thread_db_pthread_nextevent _thread_db_pthread_report_events
     _thread_db_pthread_schedparam_sched_priority _thread_db_pthread_schedpolicy
     _thread_db_pthread_specific _thread_db_pthread_start_routine _thread_db_pthread_tid
     _thread_db_register32 _thread_db_register32_thread_area _thread_db_register64
     _thread_db_register64_thread_area _thread_db_rtld_global__dl_stack_used
     _thread_db_rtld_global__dl_stack_user _thread_db_rtld_global__dl_tls_dtv_slotinfo_list
     _thread_db_sizeof_dtv_slotinfo _thread_db_sizeof_dtv_slotinfo_list
     _thread_db_sizeof_list_t _thread_db_sizeof_pthread _thread_db_sizeof_pthread_key_data
     _thread_db_sizeof_pthread_key_data_level2 _thread_db_sizeof_pthread_key_struct
     _thread_db_sizeof_td_eventbuf_t _thread_db_sizeof_td_thr_events_t
     _thread_db_td_eventbuf_t_eventdata _thread_db_td_eventbuf_t_eventnum
     _thread_db_td_thr_events_t_event_bits abort alarm arch_prctl bsd_signal call_once capget
     capset cnd_broadcast cnd_destroy cnd_init cnd_signal cnd_timedwait cnd_wait exit
     getcontext getcpu getegid geteuid getgid getgroups getitimer getpagesize getpgid getpgrp
     getpid getppid getpriority getprotobyname getprotobyname_r getprotobynumber
     getprotobynumber_r getprotoent getprotoent_r getpublickey getpw getpwent getpwent_r
     getpwnam getpwnam_r getpwuid getpwuid_r getresgid getresuid getrusage getsid gettid getuid
     group_member gsignal initgroups ioperm iopl kill killpg longjmp modify_ldt mtx_destroy
     mtx_init mtx_lock mtx_timedlock mtx_trylock mtx_unlock nice on_exit pause personality
     posix_spawnattr_destroy posix_spawnattr_getcgroup_np posix_spawnattr_getflags
     posix_spawnattr_getpgroup posix_spawnattr_getschedparam posix_spawnattr_getschedpolicy
     posix_spawnattr_getsigdefault posix_spawnattr_getsigmask posix_spawnattr_init
     posix_spawnattr_setcgroup_np posix_spawnattr_setflags posix_spawnattr_setpgroup
     posix_spawnattr_setschedparam posix_spawnattr_setschedpolicy posix_spawnattr_setsigdefault
     posix_spawnattr_setsigmask prctl pthread_attr_destroy pthread_attr_getaffinity_np
     pthread_attr_getdetachstate pthread_attr_getguardsize pthread_attr_getinheritsched
     pthread_attr_getschedparam pthread_attr_getschedpolicy pthread_attr_getscope
     pthread_attr_getsigmask_np pthread_attr_getstack pthread_attr_getstackaddr
     pthread_attr_getstacksize pthread_attr_init pthread_attr_setaffinity_np
     pthread_attr_setdetachstate pthread_attr_setguardsize pthread_attr_setinheritsched
     pthread_attr_setschedparam pthread_attr_setschedpolicy pthread_attr_setscope
     pthread_attr_setsigmask_np pthread_attr_setstack pthread_attr_setstackaddr
     pthread_attr_setstacksize pthread_barrier_destroy pthread_barrier_init
     pthread_barrier_wait pthread_barrierattr_destroy pthread_barrierattr_getpshared
     pthread_barrierattr_init pthread_barrierattr_setpshared pthread_cancel
     pthread_clockjoin_np pthread_cond_broadcast pthread_cond_clockwait pthread_cond_destroy
     pthread_cond_init pthread_cond_signal pthread_cond_timedwait pthread_cond_wait
     pthread_condattr_destroy pthread_condattr_getclock pthread_condattr_getpshared
     pthread_condattr_init pthread_condattr_setclock pthread_condattr_setpshared pthread_create
     pthread_detach pthread_equal pthread_exit pthread_getaffinity_np
     pthread_getattr_default_np pthread_getattr_np pthread_getconcurrency pthread_getcpuclockid
     pthread_getname_np pthread_getschedparam pthread_getspecific pthread_gettid_np
     pthread_join pthread_key_create pthread_key_delete pthread_kill
     pthread_kill_other_threads_np pthread_mutex_clocklock pthread_mutex_consistent
     pthread_mutex_consistent_np pthread_mutex_destroy pthread_mutex_getprioceiling
     pthread_mutex_init pthread_mutex_lock pthread_mutex_setprioceiling pthread_mutex_timedlock
     pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_destroy
     pthread_mutexattr_getkind_np pthread_mutexattr_getprioceiling
     pthread_mutexattr_getprotocol pthread_mutexattr_getpshared pthread_mutexattr_getrobust
     pthread_mutexattr_getrobust_np pthread_mutexattr_gettype pthread_mutexattr_init
     pthread_mutexattr_setkind_np pthread_mutexattr_setprioceiling
     pthread_mutexattr_setprotocol pthread_mutexattr_setpshared pthread_mutexattr_setrobust
     pthread_mutexattr_setrobust_np pthread_mutexattr_settype pthread_once
     pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock pthread_rwlock_destroy
     pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_timedrdlock
     pthread_rwlock_timedwrlock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock
     pthread_rwlock_unlock pthread_rwlock_wrlock pthread_rwlockattr_destroy
     pthread_rwlockattr_getkind_np pthread_rwlockattr_getpshared pthread_rwlockattr_init
     pthread_rwlockattr_setkind_np pthread_rwlockattr_setpshared pthread_self
     pthread_setaffinity_np pthread_setattr_default_np pthread_setcancelstate
     pthread_setcanceltype pthread_setconcurrency pthread_setname_np pthread_setschedparam
     pthread_setschedprio pthread_setspecific pthread_sigmask pthread_sigqueue
     pthread_spin_destroy pthread_spin_init pthread_spin_lock pthread_spin_trylock
     pthread_spin_unlock pthread_testcancel pthread_timedjoin_np pthread_tryjoin_np
     pthread_yield quick_exit raise sched_get_priority_max sched_get_priority_min
     sched_getaffinity sched_getattr sched_getcpu sched_getparam sched_getscheduler
     sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
     sched_yield sem_clockwait sem_destroy sem_getvalue sem_init sem_post sem_timedwait
     sem_trywait sem_wait semctl semget semop semtimedop setcontext setdomainname setegid
     seteuid setfsgid setfsuid setgid setgroups sethostname setitimer setjmp setlogmask setpgid
     setpgrp setpriority setprotoent setregid setresgid setresuid setreuid setsid setuid
     sigabbrev_np sigaction sigaddset sigandset sigblock sigdelset sigdescr_np
     sigemptyset sigfillset siggetmask sighold sigignore siginterrupt sigisemptyset sigismember
     siglongjmp signal sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn
     sigset sigsetmask sigstack sigsuspend sigtimedwait sigvec sigwait sigwaitinfo ssignal
     sysv_signal tgkill thrd_create thrd_current thrd_detach thrd_equal thrd_exit thrd_join
     thrd_sleep thrd_yield tss_create tss_delete tss_get tss_set ualarm ulimit vhangup vlimit
     vtimes wait wait3 wait4 waitid waitpid",
    // Names of users, hosts and services, and the locale: system files, read within libc.
    "__check_rhosts_file __collate_element_hash __collate_element_strings
     __collate_symbol_classes __collate_symbol_hash __collate_symbol_strings __copy_grp
     __dcgettext __dgettext __dn_comp __dn_count_labels __dn_expand __dn_skipname __duplocale
     __freelocale __gai_sigqueue __gconv_create_spec __gconv_destroy_spec __gconv_get_alias_db
     __gconv_get_cache __gconv_get_modules_db __gconv_open __gconv_transliterate
     __getdomainname_chk __gethostname_chk __h_errno __h_errno_location
     __idna_from_dns_encoding __idna_to_dns_encoding __inet6_scopeid_pton __inet_aton_exact
     __inet_ntop_chk __inet_pton_chk __inet_pton_length __internal_endnetgrent
     __internal_getnetgrent_r __internal_setnetgrent __merge_grp __netlink_assert_response
     __newlocale __nl_langinfo_l __ns_get16 __ns_get32 __ns_name_compress __ns_name_ntop
     __ns_name_pack __ns_name_pton __ns_name_skip __ns_name_uncompress __ns_name_unpack
     __nss_configure_lookup __nss_database_get __nss_database_lookup __nss_database_lookup2
     __nss_disable_nscd __nss_files_data_endent __nss_files_data_put __nss_files_data_setent
     __nss_group_lookup __nss_group_lookup2 __nss_hash __nss_hostname_digits_dots
     __nss_hosts_lookup __nss_hosts_lookup2 __nss_lookup __nss_lookup_function __nss_next
     __nss_next2 __nss_parse_line_result __nss_passwd_lookup __nss_passwd_lookup2
     __nss_services_lookup2 __rcmd_errstr __res_close __res_context_hostalias
     __res_context_mkquery __res_context_query __res_context_search __res_context_send
     __res_dnok __res_get_nsaddr __res_hnok __res_hostalias __res_iclose __res_init
     __res_isourserver __res_mailok __res_mkquery __res_nameinquery __res_nclose __res_ninit
     __res_nmkquery __res_nopt __res_nquery __res_nquerydomain __res_nsearch __res_nsend
     __res_ownok __res_queriesmatch __res_query __res_querydomain __res_randomid __res_search
     __res_send __res_state __resolv_context_get __resolv_context_get_override
     __resolv_context_get_preinit __resolv_context_put __resp __sysctl __uselocale
     _libc_intl_domainname _nl_default_dirname _nl_domain_bindings _nl_msg_cat_cntr
     _nss_compat_endgrent _nss_compat_endpwent _nss_compat_endspent _nss_compat_getgrent_r
     _nss_compat_getgrgid_r _nss_compat_getgrnam_r _nss_compat_getpwent_r
     _nss_compat_getpwnam_r _nss_compat_getpwuid_r _nss_compat_getspent_r
     _nss_compat_getspnam_r _nss_compat_initgroups_dyn _nss_compat_setgrent
     _nss_compat_setpwent _nss_compat_setspent _nss_db_endetherent _nss_db_endgrent
     _nss_db_endnetgrent _nss_db_endprotoent _nss_db_endpwent _nss_db_endrpcent
     _nss_db_endservent _nss_db_endsgent _nss_db_endspent _nss_db_getetherent_r
     _nss_db_getgrent_r _nss_db_getgrgid_r _nss_db_getgrnam_r _nss_db_gethostton_r
     _nss_db_getnetgrent_r _nss_db_getntohost_r _nss_db_getprotobyname_r
     _nss_db_getprotobynumber_r _nss_db_getprotoent_r _nss_db_getpwent_r _nss_db_getpwnam_r
     _nss_db_getpwuid_r _nss_db_getrpcbyname_r _nss_db_getrpcbynumber_r _nss_db_getrpcent_r
     _nss_db_getservbyname_r _nss_db_getservbyport_r _nss_db_getservent_r _nss_db_getsgent_r
     _nss_db_getsgnam_r _nss_db_getspent_r _nss_db_getspnam_r _nss_db_init
     _nss_db_initgroups_dyn _nss_db_setetherent _nss_db_setgrent _nss_db_setnetgrent
     _nss_db_setprotoent _nss_db_setpwent _nss_db_setrpcent _nss_db_setservent _nss_db_setsgent
     _nss_db_setspent _nss_dns_getcanonname_r _nss_dns_gethostbyaddr2_r
     _nss_dns_gethostbyaddr_r _nss_dns_gethostbyname2_r _nss_dns_gethostbyname3_r
     _nss_dns_gethostbyname4_r _nss_dns_gethostbyname_r _nss_dns_getnetbyaddr_r
     _nss_dns_getnetbyname_r _nss_files_endaliasent _nss_files_endetherent _nss_files_endgrent
     _nss_files_endhostent _nss_files_endnetent _nss_files_endnetgrent _nss_files_endprotoent
     _nss_files_endpwent _nss_files_endrpcent _nss_files_endservent _nss_files_endsgent
     _nss_files_endspent _nss_files_getaliasbyname_r _nss_files_getaliasent_r
     _nss_files_getetherent_r _nss_files_getgrent_r _nss_files_getgrgid_r _nss_files_getgrnam_r
     _nss_files_gethostbyaddr_r _nss_files_gethostbyname2_r _nss_files_gethostbyname3_r
     _nss_files_gethostbyname4_r _nss_files_gethostbyname_r _nss_files_gethostent_r
     _nss_files_gethostton_r _nss_files_getnetbyaddr_r _nss_files_getnetbyname_r
     _nss_files_getnetent_r _nss_files_getnetgrent_r _nss_files_getntohost_r
     _nss_files_getprotobyname_r _nss_files_getprotobynumber_r _nss_files_getprotoent_r
     _nss_files_getpublickey _nss_files_getpwent_r _nss_files_getpwnam_r _nss_files_getpwuid_r
     _nss_files_getrpcbyname_r _nss_files_getrpcbynumber_r _nss_files_getrpcent_r
     _nss_files_getsecretkey _nss_files_getservbyname_r _nss_files_getservbyport_r
     _nss_files_getservent_r _nss_files_getsgent_r _nss_files_getsgnam_r _nss_files_getspent_r
     _nss_files_getspnam_r _nss_files_init _nss_files_initgroups_dyn _nss_files_parse_etherent
     _nss_files_parse_grent _nss_files_parse_netent _nss_files_parse_protoent
     _nss_files_parse_pwent _nss_files_parse_rpcent _nss_files_parse_servent
     _nss_files_parse_sgent _nss_files_parse_spent _nss_files_setaliasent
     _nss_files_setetherent _nss_files_setgrent _nss_files_sethostent _nss_files_setnetent
     _nss_files_setnetgrent _nss_files_setprotoent _nss_files_setpwent _nss_files_setrpcent
     _nss_files_setservent _nss_files_setsgent _nss_files_setspent _nss_hesiod_endgrent
     _nss_hesiod_endprotoent _nss_hesiod_endpwent _nss_hesiod_endservent _nss_hesiod_getgrgid_r
     _nss_hesiod_getgrnam_r _nss_hesiod_getprotobyname_r _nss_hesiod_getprotobynumber_r
     _nss_hesiod_getpwnam_r _nss_hesiod_getpwuid_r _nss_hesiod_getservbyname_r
     _nss_hesiod_getservbyport_r _nss_hesiod_initgroups_dyn _nss_hesiod_setgrent
     _nss_hesiod_setprotoent _nss_hesiod_setpwent _nss_hesiod_setservent
     _nss_netgroup_parseline _res _res_hconf _res_opcodes bind_textdomain_codeset dcgettext
     dcngettext dgettext dn_comp dn_expand dn_skipname dngettext duplocale endaliasent
     endhostent endnetent endnetgrent endprotoent endrpcent endservent ether_aton ether_aton_r
     ether_hostton ether_line ether_ntoa ether_ntoa_r ether_ntohost freeaddrinfo freeifaddrs
     freelocale gai_cancel gai_error gai_strerror gai_suspend getaddrinfo getaddrinfo_a
     getaliasbyname getaliasbyname_r getaliasent getaliasent_r getdomainname getgrent
     getgrent_r getgrgid getgrgid_r getgrnam getgrnam_r getgrouplist gethostbyaddr
     gethostbyaddr_r gethostbyname gethostbyname2 gethostbyname2_r gethostbyname_r gethostent
     gethostent_r gethostname getifaddrs getnameinfo getnetbyaddr getnetbyaddr_r getnetbyname
     getnetbyname_r getnetent getnetent_r getnetgrent getnetgrent_r getnetname getrpcbyname
     getrpcbyname_r getrpcbynumber getrpcbynumber_r getrpcent getrpcent_r getrpcport
     getservbyname getservbyname_r getservbyport getservbyport_r getservent getservent_r
     getsgnam getsgnam_r getspnam getspnam_r gettext h_errlist h_nerr hstrerror htonl htons
     iconv iconv_close if_freenameindex if_indextoname if_nameindex if_nametoindex in6addr_any
     in6addr_loopback inet6_opt_append inet6_opt_find inet6_opt_finish inet6_opt_get_val
     inet6_opt_init inet6_opt_next inet6_opt_set_val inet6_option_alloc inet6_option_append
     inet6_option_find inet6_option_init inet6_option_next inet6_option_space inet6_rth_add
     inet6_rth_getaddr inet6_rth_init inet6_rth_reverse inet6_rth_segments inet6_rth_space
     inet_addr inet_aton inet_lnaof inet_makeaddr inet_net_ntop inet_net_pton inet_neta
     inet_netof inet_network inet_nsap_addr inet_nsap_ntoa inet_ntoa inet_ntop inet_pton
     innetgr localeconv newlocale ngettext nl_langinfo nl_langinfo_l ns_datetosecs
     ns_format_ttl ns_get16 ns_get32 ns_initparse ns_makecanon ns_msg_getflag ns_name_compress
     ns_name_ntol ns_name_ntop ns_name_pack ns_name_pton ns_name_rollback ns_name_skip
     ns_name_uncompress ns_name_unpack ns_parse_ttl ns_parserr ns_put16 ns_put32 ns_samedomain
     ns_samename ns_skiprr ns_sprintrr ns_sprintrrf ns_subdomain ntohl ntohs res_dnok
     res_gethostbyaddr res_gethostbyname res_gethostbyname2 res_hnok res_mailok res_mkquery
     res_nmkquery res_nquery res_nquerydomain res_nsearch res_nsend res_ownok res_query
     res_querydomain res_search res_send res_send_setqhook res_send_setrhook setaliasent
     sethostent setlocale setnetent setnetgrent setrpcent setservent sgetsgent sgetsgent_r
     sgetspent sgetspent_r sysctl textdomain uselocale",
    // Remote procedures: sockets and memory.
    "__key_decryptsession_pk_LOCAL __key_encryptsession_pk_LOCAL __key_gendes_LOCAL
     __rpc_thread_createerr __rpc_thread_svc_fdset __rpc_thread_svc_max_pollfd
     __rpc_thread_svc_pollfd _authenticate _null_auth _rpc_dtablesize _seterr_reply
     authdes_create authdes_getucred authdes_pk_create authnone_create authunix_create
     authunix_create_default callrpc cbc_crypt clnt_broadcast clnt_create clnt_spcreateerror
     clnt_sperrno clnt_sperror clntraw_create clnttcp_create clntudp_bufcreate clntudp_create
     clntunix_create des_setparity ecb_crypt getsecretkey host2netname key_decryptsession
     key_decryptsession_pk key_encryptsession key_encryptsession_pk key_gendes key_get_conv
     key_secretkey_is_set key_setnet key_setsecret netname2host netname2user passwd2des
     pmap_getmaps pmap_getport pmap_rmtcall pmap_set pmap_unset registerrpc rexecoptions
     rpc_createerr svc_exit svc_fdset svc_getreq svc_getreq_common svc_getreq_poll
     svc_getreqset svc_max_pollfd svc_pollfd svc_register svc_run svc_sendreply svc_unregister
     svcauthdes_stats svcerr_auth svcerr_decode svcerr_noproc svcerr_noprog svcerr_progvers
     svcerr_systemerr svcerr_weakauth svcfd_create svcraw_create svctcp_create svcudp_bufcreate
     svcudp_create svcudp_enablecache svcunix_create svcunixfd_create user2netname xdecrypt
     xdr_accepted_reply xdr_array xdr_authdes_cred xdr_authdes_verf xdr_authunix_parms xdr_bool
     xdr_bytes xdr_callhdr xdr_callmsg xdr_char xdr_cryptkeyarg xdr_cryptkeyarg2
     xdr_cryptkeyres xdr_des_block xdr_double xdr_enum xdr_float xdr_free xdr_getcredres
     xdr_hyper xdr_int xdr_int16_t xdr_int32_t xdr_int64_t xdr_int8_t xdr_key_netstarg
     xdr_key_netstres xdr_keybuf xdr_keystatus xdr_long xdr_longlong_t xdr_netnamestr
     xdr_netobj xdr_opaque xdr_opaque_auth xdr_pmap xdr_pmaplist xdr_pointer xdr_quad_t
     xdr_reference xdr_rejected_reply xdr_replymsg xdr_rmtcall_args xdr_rmtcallres xdr_short
     xdr_sizeof xdr_string xdr_u_char xdr_u_hyper xdr_u_int xdr_u_long xdr_u_longlong_t
     xdr_u_quad_t xdr_u_short xdr_uint16_t xdr_uint32_t xdr_uint64_t xdr_uint8_t xdr_union
     xdr_unixcred xdr_vector xdr_void xdr_wrapstring xdrmem_create xdrrec_create
     xdrrec_endofrecord xdrrec_eof xdrrec_skiprecord xencrypt xprt_register xprt_unregister",
    // System V memory, semaphores and messages.
    "msgctl msgget msgrcv msgsnd shmat shmctl shmdt shmget",
    // The linker, the allocator and measuring.
    "__after_morecore_hook __assert __assert_fail __assert_perror_fail __backtrace
     __backtrace_symbols __chk_fail __curbrk __cyg_profile_func_enter __cyg_profile_func_exit
     __default_morecore __errno_location __fdelt_chk __fdelt_warn __fentry__ __fortify_fail
     __fpu_control __free_hook __libc_alloc_buffer_alloc_array __libc_alloc_buffer_allocate
     __libc_alloc_buffer_copy_bytes __libc_alloc_buffer_copy_string
     __libc_alloc_buffer_create_failure __libc_alloca_cutoff __libc_allocate_once_slow
     __libc_allocate_rtsig __libc_allocate_rtsig_private __libc_calloc __libc_clntudp_bufcreate
     __libc_current_sigrtmax __libc_current_sigrtmax_private __libc_current_sigrtmin
     __libc_current_sigrtmin_private __libc_dl_error_tsd __libc_dlclose __libc_dlerror_result
     __libc_dlsym __libc_dlvsym __libc_dn_expand __libc_dn_skipname __libc_dynarray_at_failure
     __libc_dynarray_emplace_enlarge __libc_dynarray_finalize __libc_dynarray_resize
     __libc_dynarray_resize_clear __libc_early_init __libc_enable_secure __libc_fatal
     __libc_free __libc_freeres __libc_ifunc_impl_list __libc_init_first __libc_longjmp
     __libc_mallinfo __libc_malloc __libc_malloc_pthread_startup __libc_mallopt __libc_memalign
     __libc_msgrcv __libc_msgsnd __libc_ns_makecanon __libc_ns_samename __libc_pthread_init
     __libc_pvalloc __libc_realloc __libc_reallocarray __libc_res_dnok __libc_res_hnok
     __libc_res_nameinquery __libc_res_queriesmatch __libc_rpc_getport __libc_sa_len
     __libc_scratch_buffer_dupfree __libc_scratch_buffer_grow
     __libc_scratch_buffer_grow_preserve __libc_scratch_buffer_set_array_size
     __libc_secure_getenv __libc_sigaction __libc_siglongjmp __libc_single_threaded
     __libc_stack_end __libc_start_main __libc_thread_freeres __libc_unwind_link_get
     __libc_valloc __libdl_freeres __libdl_version_placeholder __malloc_hook
     __malloc_initialize_hook __morecore __pointer_chk_guard __profile_frequency __realloc_hook
     __rtld_version_placeholder __stack_chk_fail __tls_get_addr __tunable_get_val
     __tunable_is_initialized __x86_get_cpuid_feature_leaf _dl_addr _dl_allocate_tls
     _dl_allocate_tls_init _dl_argv _dl_audit_preinit _dl_audit_symbind_alt _dl_catch_error
     _dl_catch_exception _dl_deallocate_tls _dl_debug_state _dl_exception_create
     _dl_exception_create_format _dl_exception_free _dl_fatal_printf _dl_find_dso_for_object
     _dl_find_object _dl_get_tls_static_info _dl_make_stack_executable _dl_mcount
     _dl_mcount_wrapper _dl_mcount_wrapper_check _dl_open_hook _dl_open_hook2
     _dl_rtld_di_serinfo _dl_signal_error _dl_signal_exception _dl_starting_up _dl_sym _dl_vsym
     _dl_x86_get_cpu_features _dlerror_run _dlfcn_hook _mcount _rtld_global _rtld_global_ro
     aligned_alloc backtrace backtrace_symbols calloc cfree dl_iterate_phdr dladdr dladdr1
     dlclose dlerror dlinfo dlsym dlvsym errno free free_aligned_sized free_sized
     gnu_get_libc_release gnu_get_libc_version mallinfo mallinfo2 malloc malloc_get_state
     malloc_set_state malloc_trim malloc_usable_size mallopt mallwatch mcheck mcheck_check_all
     mcheck_pedantic mcount memalignment mprobe posix_memalign profil pvalloc realloc
     reallocarray sprofil tr_break valloc",
    // Others.
    "_Exit _IO_2_1_stderr_ _IO_2_1_stdin_ _IO_2_1_stdout_ _IO_file_jumps _IO_list_all
     _IO_wfile_jumps _LIB_VERSION __b64_ntop __b64_pton __cmsg_nxthdr __confstr_chk __environ
     __getauxval __getlogin_r_chk __hostalias __libanl_version_placeholder
     __libnss_dns_version_placeholder __libnss_files_version_placeholder
     __librt_version_placeholder __libutil_version_placeholder __loc_aton __loc_ntoa __p_cdname
     __p_cdnname __p_class __p_class_syms __p_fqname __p_fqnname __p_option __p_rcode
     __p_secstodate __p_time __p_type __p_type_syms __posix_getopt __progname __progname_full
     __putlong __putshort __secure_getenv __sym_ntop __sym_ntos __sym_ston __sysconf
     __xpg_sigpause __xpg_strerror_r _environ _gethtbyaddr _gethtbyname _gethtbyname2 _gethtent
     _getlong _getshort _itoa_lower_digits _r_debug _sethtent _sys_errlist _sys_nerr
     _sys_siglist addseverity argp_err_exit_status argp_program_bug_address
     argp_program_version argp_program_version_hook cfgetibaud cfgetispeed cfgetobaud
     cfgetospeed cfmakeraw cfsetbaud cfsetibaud cfsetispeed cfsetobaud cfsetospeed cfsetspeed
     clearenv confstr create_module delete_module environ error_message_count
     error_one_per_line error_print_progname get_avphys_pages get_kernel_syms get_myaddress
     get_nprocs get_nprocs_conf get_phys_pages getauxval getdate_err getdtablesize getenv
     getopt getopt_long getopt_long_only getutmp getutmpx gnu_dev_major gnu_dev_makedev
     gnu_dev_minor init_module klogctl makecontext optarg opterr optind optopt
     program_invocation_name program_invocation_short_name putenv query_module reboot
     secure_getenv setenv swapcontext sys_errlist sys_nerr sys_sigabbrev sys_siglist sysconf
     sysinfo umask uname unsetenv wordfree",
    // What the compiler and its library leave in programs.
    "_IO_stdin_used __deregister_frame_info __fprintf_free __overflow_chk __poll_free
     __realloc_chk __register_frame_info at_quick_exit atexit clone3 crypt h_errno
     _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __gmon_start__ __deregister_frame
     __register_frame",
];
