//! The calls that are not hooked, with the reason why that is safe: the last section of the table.

/// Adds the section to the others, and hands all to the macro that is named first.
#[doc(hidden)]
#[macro_export]
macro_rules! ledger_passes {
    ([$($to:tt)+] $($others:tt)+) => { $($to)+! { $($others)+
passes {
    "Works on a FILE, whose bytes go through the functions that it was opened with." {
        fread fread_unlocked __fread_chk __fread_unlocked_chk fwrite fwrite_unlocked fgets
        fgets_unlocked
        __fgets_chk __fgets_unlocked_chk fgetc fgetc_unlocked getc getc_unlocked _IO_getc getchar
        getchar_unlocked
        fputs fputs_unlocked puts fputc fputc_unlocked putc putc_unlocked _IO_putc putchar
        putchar_unlocked
        ungetc getline getdelim __getdelim __uflow __overflow printf fprintf vprintf vfprintf
        __printf_chk
        __fprintf_chk __vprintf_chk __vfprintf_chk scanf fscanf vscanf vfscanf __isoc99_scanf
        __isoc99_fscanf
        __isoc99_vscanf __isoc99_vfscanf __isoc23_scanf __isoc23_fscanf __isoc23_vscanf
        __isoc23_vfscanf
        fseek fseeko fseeko64 ftell ftello ftello64 rewind fgetpos fgetpos64 fsetpos fsetpos64 feof
        feof_unlocked
        ferror ferror_unlocked clearerr clearerr_unlocked fflush fflush_unlocked setbuf setbuffer
        setvbuf
        setlinebuf flockfile ftrylockfile funlockfile fcloseall perror psignal getw putw __fpending
        __fpurge
        __freading __fwriting __freadable __fwritable __flbf __fbufsize __fsetlocking __freadptr
        _flushlbf
        malloc_info malloc_stats _IO_feof _IO_ferror _IO_fflush _IO_fgetpos _IO_fgetpos64
        _IO_fgets _IO_flockfile _IO_flush_all _IO_flush_all_linebuffered _IO_fprintf
        _IO_fputs _IO_fread _IO_fsetpos _IO_fsetpos64 _IO_ftell _IO_ftrylockfile
        _IO_funlockfile _IO_fwrite _IO_gets _IO_printf _IO_puts _IO_setbuffer _IO_setvbuf
        _IO_ungetc _IO_vfprintf _IO_vfscanf __vfscanf __underflow gets __gets_chk __fseeko64
        __ftello64 __libc_readline_unlocked __nss_readline putpwent putgrent putspent
        putsgent fgetpwent fgetgrent fgetpwent_r fgetgrent_r fgetspent fgetspent_r fgetsgent
        fgetsgent_r addmntent __getmntent_r xdrstdio_create err errx warn warnx verr verrx
        vwarn vwarnx error error_at_line argp_error argp_failure argp_help argp_state_help
        argp_usage argp_parse __fp_query __fp_nquery __fp_resstat __p_query
        clnt_perror clnt_pcreateerror clnt_perrno fmtmsg printf_size
    }
    "The variable of a standard stream; it follows the descriptor when a sealed file comes to \
        lie there." {
        stdin stdout stderr
    }
    "A stream on memory or on functions of the program, not on a file." {
        fopencookie fmemopen open_memstream open_wmemstream
    }
    "libc writes to the descriptor within itself: a sealed file is refused by the kernel, EBADF." {
        backtrace_symbols_fd psiginfo
        __backtrace_symbols_fd eventfd_read eventfd_write herror
    }
    "Lies in /tmp and is deleted at once; no policy holds there." {
        tmpfile tmpfile64
    }
    "Makes a name, not a file." {
        mktemp tempnam tmpnam tmpnam_r mkdtemp
        __mktemp
    }
    "Names of files and directories are not sealed." {
        mkdir mkdirat mkfifo mkfifoat mknod mknodat __xmknod __xmknodat
        eaccess euidaccess getcwd __getcwd_chk get_current_dir_name getwd __getwd_chk
        ftok
    }
    "Owner, mode, times and extended attributes of a name are those of the file." {
        lchmod lchown lutimes futimesat lgetxattr
        lsetxattr
        llistxattr lremovexattr
    }
    "About the file system." {
        statvfs statvfs64 pathconf sync mount umount umount2 quotactl
        swapoff
        fsconfig fsmount fsopen fspick mount_setattr move_mount open_tree
    }
    "A directory is not sealed; what is read of it comes through readdir." {
        fdopendir globfree globfree64 rewinddir seekdir telldir dirfd alphasort alphasort64
        versionsort versionsort64
    }
    "Lists names within libc, `.tidelock` among them, with sizes on the disk; opening goes \
        through open." {
        fts_open fts_set fts64_open fts64_set getdents64 getdirentries getdirentries64
    }
    "Works on a handle of the visible descriptor, which leads to the anchor." {
        name_to_handle_at
    }
    "Tells its handlers, which were registered at start." {
        fork __register_atfork pthread_atfork
        __fork __libc_fork
    }
    "The child calls nothing of ours before it is another program; hidden descriptors are \
        closed on exec, visible ones are anchors that nobody can use." {
        posix_spawn posix_spawnp posix_spawn_file_actions_init posix_spawn_file_actions_destroy
        posix_spawn_file_actions_addclose
        posix_spawn_file_actions_adddup2
        posix_spawn_file_actions_addchdir_np posix_spawn_file_actions_addfchdir_np system popen
        pclose
        __libc_system _IO_popen _IO_proc_open _IO_proc_close pidfd_spawn pidfd_spawnp
        posix_spawn_file_actions_addclosefrom_np posix_spawn_file_actions_addtcsetpgrp_np
        wordexp
    }
    "Not a regular file, or one in /dev/shm: nothing to seal." {
        pipe pipe2 socket socketpair accept accept4 eventfd timerfd_create signalfd inotify_init
        inotify_init1
        inotify_add_watch inotify_rm_watch fanotify_mark epoll_create epoll_create1
        epoll_wait
        epoll_pwait epoll_pwait2 memfd_create shm_open shm_unlink sem_open sem_unlink mq_open
        pidfd_open
        openpty posix_openpt grantpt unlockpt ptsname ptsname_r getpt
        __pipe timerfd_settime timerfd_gettime pidfd_getpid pidfd_send_signal __mq_open_2
        mq_close mq_getattr mq_notify mq_receive mq_send mq_setattr mq_timedreceive
        mq_timedsend mq_unlink __shm_get_name __shm_directory sem_close __ptsname_r_chk
    }
    "Only on sockets; a visible descriptor that is sent along is an anchor that the receiver \
        cannot use. One that is received is not looked at: a sealed file that a program without the \
        library sends is what the disk has." {
        send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg __recv_chk __recvfrom_chk
        bind connect __connect listen getpeername getsockname getsockopt setsockopt shutdown
        sockatmark isfdtype __send __recv __sendmmsg __socket getsourcefilter
        setsourcefilter getipv4sourcefilter setipv4sourcefilter bindresvport rcmd rcmd_af
        rexec rexec_af rresvport rresvport_af rtime
    }
    "Works on memory; no map of a program shows a sealed file's pages." {
        msync posix_madvise mlock mlock2 munlock mlockall munlockall
        mincore mseal
        remap_file_pages brk sbrk
        __sbrk pkey_alloc pkey_free pkey_get pkey_set
        pkey_mprotect process_madvise process_mrelease
    }
    "Loads code within libc; a library in a protected directory is sealed and therefore refused." {
        __libc_dlopen_mode
    }
    "Works on requests that were refused when they were made." {
        aio_error aio_error64 aio_return aio_return64 aio_cancel aio_cancel64 aio_suspend
        aio_suspend64 aio_init
    }
    "Works on terminals; on a sealed file the kernel answers EBADF." {
        tcgetattr tcsetattr tcsendbreak tcdrain tcflush tcflow tcgetpgrp tcsetpgrp tcgetsid ctermid
    }
    "A path of the operating system, or the one that utmpname was given, opened within libc." {
        syslog __syslog_chk vsyslog openlog closelog getmntent getpass
        getloadavg setutxent getutxent
        getmntent_r hasmntopt __vsyslog_chk setutent getutent endutent getutline pututline
        setpwent endpwent
        setgrent endgrent
        getutent_r getutid getutid_r getutline_r getutxid getutxline endutxent pututxline
        login logout logwtmp getlogin getlogin_r ttyslot cuserid lckpwdf ulckpwdf setspent
        endspent setsgent endsgent getspent getspent_r getsgent getsgent_r getttyent
        getttynam setttyent endttyent getfsent getfsfile getfsspec setfsent endfsent
        getusershell setusershell endusershell ruserpass ruserok ruserok_af iruserok
        iruserok_af __ivaliduser sethostid gethostid __nss_files_fopen __nss_files_data_open
        __file_change_detection_for_fp __file_change_detection_for_path
        __file_change_detection_for_stat __file_is_unchanged
    }
    "Changes what paths mean for the whole process; a server that does so does it before it \
        opens its directory." {
        setns
    }
    "Machinery of libc's streams, exported for programs of long ago: works on what a FILE was \
        opened with; of a sealed file behind libc's own FILE the kernel refuses the descriptor, \
        EBADF." {
        _IO_adjust_column _IO_adjust_wcolumn _IO_default_doallocate _IO_default_finish
        _IO_default_pbackfail _IO_default_uflow _IO_default_xsgetn _IO_default_xsputn
        _IO_do_write _IO_doallocbuf _IO_enable_locks _IO_file_attach _IO_file_doallocate
        _IO_file_init _IO_file_overflow _IO_file_read _IO_file_seek _IO_file_seekoff
        _IO_file_setbuf _IO_file_stat _IO_file_sync _IO_file_underflow _IO_file_write
        _IO_file_xsputn _IO_free_backup_area _IO_free_wbackup_area _IO_getline
        _IO_getline_info _IO_init _IO_init_marker _IO_init_wmarker _IO_iter_begin
        _IO_iter_end _IO_iter_file _IO_iter_next _IO_least_wmarker _IO_link_in _IO_list_lock
        _IO_list_resetlock _IO_list_unlock _IO_marker_delta _IO_marker_difference _IO_padn
        _IO_peekc_locked _IO_remove_marker _IO_seekmark _IO_seekoff _IO_seekpos
        _IO_seekwmark _IO_setb _IO_sgetn _IO_sputbackc _IO_sputbackwc _IO_str_init_readonly
        _IO_str_init_static _IO_str_overflow _IO_str_pbackfail _IO_str_seekoff
        _IO_str_underflow _IO_sungetc _IO_sungetwc _IO_switch_to_get_mode
        _IO_switch_to_main_wget_area _IO_switch_to_wbackup_area _IO_switch_to_wget_mode
        _IO_un_link _IO_unsave_markers _IO_unsave_wmarkers _IO_wdefault_doallocate
        _IO_wdefault_finish _IO_wdefault_pbackfail _IO_wdefault_uflow _IO_wdefault_xsgetn
        _IO_wdefault_xsputn _IO_wdo_write _IO_wdoallocbuf _IO_wfile_overflow
        _IO_wfile_seekoff _IO_wfile_sync _IO_wfile_underflow _IO_wfile_xsputn
        _IO_wmarker_delta _IO_wsetb __woverflow __wuflow __wunderflow
    }
    "Reads a file of the program's choice within libc: of a sealed one the bytes on the disk, \
        which its own checks refuse." {
        __open_catalog catopen catgets catclose iconv_open bindtextdomain getdate getdate_r
    }
    "Memory of another process: not a file." {
        process_vm_readv process_vm_writev ptrace
    }
    "Writes addresses, not data, to a file that the environment names (MALLOC_TRACE, \
        GMON_OUT_PREFIX) or to gmon.out, only in programs that are built or told to be measured." {
        mtrace muntrace monstartup __monstartup moncontrol _mcleanup
    }
    "The kernel only tells the limit." {
        getrlimit getrlimit64 __getrlimit
    }
    "No kernel of today carries it out: ENOSYS." {
        getmsg getpmsg putmsg putpmsg isastream fattach fdetach gtty stty revoke chflags
        fchflags uselib setlogin bdflush sstk ustat nfsservctl
    }
}
    } };
}
