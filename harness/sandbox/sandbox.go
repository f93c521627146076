// Package sandbox runs a program in new user, mount, pid and network namespaces. What the program breaks is
// broken only there, and the kernel frees everything when it ends.
//
// A program calls Enter first. Outside the sandbox, Enter starts the same binary again as the init of new
// namespaces, waits, and exits with its code. Inside, it returns. There are three processes:
//
//	outer     the program as the user started it: passes signals in and the exit code out
//	init      pid 1: mounts /proc and a private /run, reaps orphans, passes signals on
//	payload   the program again, with the same arguments, now inside
//
// The init ends with the outer process (by a parent-death signal, and by a pipe until that is set) and with
// the payload. When pid 1 ends, the kernel kills every process of the pid namespace and frees its network
// namespaces, links and mounts. There is no other clean-up: kill -9 of the outer process leaves nothing.
//
// Nothing here needs root. Root gets no user namespace.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Dir is the folder on the sandbox's own tmpfs in which worlds keep their files.
	Dir = "/run/nemesh"
	// ExitNotBuilt is the exit code of a program whose sandbox could not be built.
	ExitNotBuilt = 2
	// SizeEnv names the environment variable that limits the tmpfs on /run, in the kernel's notation ("64m").
	// Without it the kernel's default of half the memory applies (Documentation/filesystems/tmpfs.rst).
	SizeEnv = "NEMESH_RUN_SIZE"

	marker   = Dir + "/inside"
	tmpDir   = Dir + "/tmp"
	initPart = "nemesh-init"

	// Descriptors that the outer process hands to the init, after stdin, stdout and stderr.
	lifelineFD = 3
	relayFD    = 4
)

func init() { RegisterPart(initPart, initMain) }

// Inside reports whether this process already runs in a sandbox.
func Inside() bool {
	_, err := os.Stat(marker)
	return err == nil
}

// Enter returns at once inside a sandbox. Outside it runs this program again inside a new one, with the same
// arguments, environment and working directory, and exits with its exit code: 128+N when signal N ended it,
// ExitNotBuilt after a message on stderr when no sandbox could be built. It also runs the parts registered
// with RegisterPart, so a main or TestMain needs no other preparation.
func Enter() {
	DispatchPart()
	if Inside() {
		return
	}
	code, err := outer(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesh:", err)
		os.Exit(ExitNotBuilt)
	}
	os.Exit(code)
}

// outer starts the init in new namespaces, passes signals to it and returns its exit code.
func outer(args []string) (int, error) {
	// The parent-death signal follows the thread that forked, not the process (prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	lifeRead, lifeWrite, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make the sandbox's lifeline: %w", err)
	}
	defer lifeWrite.Close()
	relayOuter, relayInner, err := relaySockets()
	if err != nil {
		return 0, err
	}

	cmd := PartCommand(initPart, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{lifeRead, relayInner}
	// A process group of its own: an interrupt typed at the terminal reaches the outer process alone and is
	// passed on once, not twice.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}

	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, refused(err)
	}
	lifeRead.Close()
	relayInner.Close()
	go forward(signals, cmd.Process)
	go serveRelay(relayOuter)
	return exitCode(cmd.Wait())
}

// forwarded are the signals by which a user or a CI runner asks a program to stop or to report.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

func forward(signals <-chan os.Signal, to *os.Process) {
	for s := range signals {
		_ = to.Signal(s) // an error means that it has ended, which the caller of Wait is about to learn
	}
}

// exitCode turns the result of cmd.Wait into the exit code to pass on.
func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	default:
		return 0, fmt.Errorf("wait for the sandbox: %w", err)
	}
}

// initMain is pid 1 of the sandbox.
func initMain() int {
	code, err := runInit(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesh:", err)
		return ExitNotBuilt
	}
	return code
}

func runInit(args []string) (int, error) {
	unix.CloseOnExec(lifelineFD)
	unix.CloseOnExec(relayFD)
	go dieWithOuter(os.NewFile(lifelineFD, "lifeline"))
	if err := mountPrivate(); err != nil {
		return 0, err
	}
	if err := loopbackUp(); err != nil {
		return 0, err
	}
	if err := openRelay(os.NewFile(relayFD, "relay"), args); err != nil {
		return 0, err
	}

	signals := make(chan os.Signal, 64)
	signal.Notify(signals, append([]os.Signal{syscall.SIGCHLD}, forwarded...)...)
	argv := append([]string{os.Args[0]}, args...)
	if own, err := os.Readlink("/proc/self/exe"); err == nil {
		argv[0] = own
	}
	payload, err := os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Env:   append(os.Environ(), "TMPDIR="+tmpDir),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 0, fmt.Errorf("start the program inside its sandbox: %w", err)
	}
	for s := range signals {
		if s != syscall.SIGCHLD {
			_ = unix.Kill(payload.Pid, s.(syscall.Signal))
			continue
		}
		if status, ended := reap(payload.Pid); ended {
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
	return 0, nil // not reached: the channel is never closed
}

// reap waits for every child that has ended, most of them orphans of the payload. It reports whether the
// payload has ended, and how.
func reap(payload int) (status unix.WaitStatus, ended bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return status, ended
		case pid == payload:
			status, ended = ws, true
		}
	}
}

// dieWithOuter ends the sandbox when the outer process is gone, even if that happened before the
// parent-death signal was set.
func dieWithOuter(lifeline *os.File) {
	_, _ = lifeline.Read(make([]byte, 1))
	os.Exit(128 + int(syscall.SIGKILL))
}

// mountPrivate gives the sandbox its own /proc and /run. They cannot be seen outside.
func mountPrivate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return refused(fmt.Errorf("make the mounts private: %w", err))
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return refused(fmt.Errorf("mount a /proc of the sandbox's own: %w", err))
	}
	options := "mode=0755"
	if size := os.Getenv(SizeEnv); size != "" {
		options += ",size=" + size
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("mount a private /run with %s=%q: not a size; write it like 64m or 2g",
				SizeEnv, os.Getenv(SizeEnv))
		}
		return refused(fmt.Errorf("mount a private /run: %w", err))
	}
	if err := os.MkdirAll(tmpDir, 0o700); err != nil {
		return fmt.Errorf("lay out %s: %w", Dir, err)
	}
	if err := os.WriteFile(marker, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o400); err != nil {
		return fmt.Errorf("mark the sandbox: %w", err)
	}
	return nil
}

// loopbackUp brings up the sandbox's loopback. Ginkgo's parallel processes use it.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket in the sandbox: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("name the loopback: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring up the sandbox's loopback: %w", err)
	}
	return nil
}
