//! Functions of libc that are no file calls: they take no descriptor, path or FILE.
//!
//! Families by the beginning of their names, where everything that begins so is harmless; the others one
//! by one.

/// True if the symbol of libc has nothing to do with files.
#[must_use]
pub fn is_no_file_call(name: &str) -> bool {
    words(FAMILIES).any(|family| name.starts_with(family)) || words(SINGLE).any(|one| one == name)
}

fn words(groups: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    groups.iter().flat_map(|group| group.split_ascii_whitespace())
}

const FAMILIES: &[&str] = &[
    // Memory and strings.
    "memc memm mems memp memr __mem str __str wcs wmem __wcs __wmem stpcpy stpncpy __stp wcp
     bcmp bcopy bzero explicit_bzero __explicit_bzero rawmem __rawmem",
    // Characters, numbers, time.
    "isal isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
     isw __isw tow __tow tolower toupper __ctype_ mbs __mbs mbr __mbr mbto wcto wcr btowc
     wctob mblen __wctomb_chk clock_ gmtime localtime asctime ctime mktime timegm difftime
     strf strp timer_ tz",
    // Threads, signals, processes.
    "pthread_attr pthread_b pthread_c pthread_d pthread_e pthread_g pthread_j pthread_k
     pthread_m pthread_o pthread_r pthread_s pthread_t pthread_y __pthread_ __cxa_ siga sigb
     sigc sigd sige sigf sigg sigh sigi siglongjmp sigo sigp sigq sigr sigs sigt sigv sigw
     __sig sem_destroy sem_g sem_i sem_p sem_t sem_w sem_close sem_clockwait sched_ __sched_
     wait mtx_ cnd_ thrd_ tss_ call_once",
    // Names of users, hosts and the locale; they read system files within libc.
    "getpw getgr getaddrinfo gai_ freeaddrinfo getnameinfo gethost getserv getproto getif
     freeif inet_ if_ nl_ iconv bindtextdomain bind_textdomain textdomain dcgettext
     dcngettext dgettext dngettext gettext ngettext res_ __res_ ns_ getspnam setlocale
     newlocale duplocale freelocale uselocale localeconv argp_ reg",
    // Printing and scanning of memory.
    "snprintf sprintf vsnprintf vsprintf asprintf vasprintf __snprintf_chk __sprintf_chk
     __vsnprintf_chk __vsprintf_chk __asprintf_chk __vasprintf_chk sscanf vsscanf
     __isoc99_sscanf __isoc99_vsscanf __isoc23_str __isoc23_wcs __isoc23_sscanf
     __isoc23_vsscanf swprintf __swprintf_chk",
    // System V memory, semaphores and messages.
    "shmat shmctl shmdt shmget semctl semget semop msgctl msgget msgrcv msgsnd mq_g mq_n mq_r
     mq_s mq_t",
    // libc's own machinery.
    "_dl_ __tls_get_addr _ITM_ __gmon_ _rtld_ __libc_ __gcc_ _Unwind_ __errno_ __stack_chk_
     dladdr dlerror dlsym dlvsym dlclose dlinfo dl_iterate gnu_get_ mall __malloc_ rand srand
     drand srand48 erand lrand nrand mrand jrand arc4 getrandom getentropy",
];

const SINGLE: &[&str] = &[
    // Others.
    "abort abs backtrace backtrace_symbols aligned_alloc alarm at_quick_exit atexit atof atoi
     atol atoll bind bsearch calloc capget capset cfree connect crypt div ldiv lldiv labs
     llabs environ __environ _environ clearenv err errx warn warnx verr vwarn error exit
     _exit _Exit quick_exit ffs ffsl ffsll free reallocarray realloc valloc pvalloc
     posix_memalign getauxval __getauxval getcontext setcontext makecontext swapcontext
     getcpu getdomainname getegid getenv secure_getenv __secure_getenv geteuid getgid
     getgroups getitimer setitimer getlogin getlogin_r getopt getopt_long getopt_long_only
     optarg optind opterr optopt getpagesize __getpagesize getpeername getpgid getpgrp getpid
     getppid getpriority setpriority getresgid getresuid getrlimit getrlimit64
     getrusage getsid getsockname getsockopt setsockopt gettid
     gettimeofday settimeofday getuid h_errno __h_errno_location hcreate hsearch hdestroy
     htonl htons ntohl ntohs index rindex initgroups initstate setstate kill killpg tgkill
     l64a a64l lfind lsearch listen longjmp _longjmp __longjmp_chk setjmp _setjmp __sigsetjmp
     nanosleep nice pause personality prctl ptrace putenv qsort qsort_r raise reboot
     setdomainname setegid setenv unsetenv seteuid setfsgid setfsuid setgid setgroups
     sethostname setlogmask setpgid setpgrp setregid setresgid setresuid setreuid setsid
     setuid shutdown sleep usleep sockatmark swab sysconf __sysconf sysinfo get_nprocs
     get_nprocs_conf get_phys_pages get_avphys_pages tdelete tfind tsearch twalk time times
     timespec_get umask uname ualarm wordexp wordfree fnmatch basename __xpg_basename dirname
     ecvt fcvt gcvt program_invocation_name program_invocation_short_name __progname
     __progname_full __assert_fail __assert __assert_perror_fail __chk_fail __fdelt_chk
     __fdelt_warn __fentry__ mcount _mcount __gethostname_chk __getgroups_chk __fprintf_free
     __realloc_chk __sched_cpualloc __finite __isinf __isnan isinf isnan finite frexp ldexp
     modf scalbn copysign isfdtype arch_prctl iopl ioperm modify_ldt fgetpwent fgetgrent
     getutid ulimit vhangup vlimit process_vm_readv process_vm_writev pidfd_getfd
     pidfd_send_signal adjtime adjtimex ntp_adjtime ntp_gettime clone3 gsignal ssignal
     __ctype_b_loc _res __overflow_chk hstrerror herror imaxabs imaxdiv __poll_free
     obstack_free _obstack_begin _obstack_newchunk __signbit __fpclassify
     __register_frame_info __deregister_frame_info _IO_stdin_used",
    // libm.
    "acos acosf acosh asin asinf asinh atan atan2 atan2f atanf atanh cbrt cbrtf ceil ceilf
     cos cosf cosh erf erfc exp exp2 exp10 expf expm1 fabs fabsf fdim floor floorf fma fmax
     fmin fmod fmodf hypot hypotf lgamma lgamma_r llrint llround log log10 log1p log2 log2f
     logb logf lrint lrintf lround nan nearbyint nextafter pow powf remainder rint rintf
     round roundeven roundf sin sincos sincosf sinf sinh sqrt sqrtf tan tanf tanh tgamma
     trunc truncf signgam fesetround fegetround feclearexcept feraiseexcept fetestexcept
     feholdexcept feupdateenv fesetenv fegetenv fegetexceptflag fesetexceptflag frexpl ldexpl
     tanhf coshf sinhf nexttoward scalb significand llrintf lroundf clock wcwidth wcswidth
     in6addr_any in6addr_loopback timezone daylight __tzname __timezone __daylight
     timerfd_settime timerfd_gettime signal parse_printf_format obstack_printf
     obstack_vprintf errno dn_skipname dn_expand dn_comp cfgetospeed cfgetispeed cfsetospeed
     cfsetispeed cfmakeraw __xpg_strerror_r __uselocale __newlocale __freelocale __duplocale
     __nl_langinfo_l __h_errno __gmtime_r __resp __resolv_context_put __resolv_context_get
     __resolv_context_get_override __wctype_l",
];
