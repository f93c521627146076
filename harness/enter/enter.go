package enter

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// List describes worlds, two lines each.
func List(all []World) string {
	var b strings.Builder
	for _, w := range all {
		fmt.Fprintf(&b, "  %s  %s\n      %s\n", w.ID, w.Scenario, strings.Join(w.Nodes, " "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Enter runs a command on a node with this process's stdin, stdout and stderr, and returns its exit
// code. If stdin is a terminal, the command gets a terminal of its own, so that a shell has job control.
func (w World) Enter(name string, args []string) (int, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.socket, Net: "unix"})
	if err != nil {
		return 0, fmt.Errorf("enter %s: its world is gone (%w)", name, err)
	}
	defer func() { _ = conn.Close() }()
	term, err := openTerminal(os.Stdin, os.Stdout)
	if err != nil {
		return 0, err
	}
	q := request{Node: name, Args: args, Env: os.Environ(), TTY: term != nil}
	line, err := json.Marshal(q)
	if err != nil {
		return 0, fmt.Errorf("enter %s: %w", name, err)
	}
	fds := []int{0, 1, 2}
	if term != nil {
		slave := int(term.slave.Fd())
		fds = []int{slave, slave, slave}
	}
	line = append(line, '\n')
	n, _, err := conn.WriteMsgUnix(line, unix.UnixRights(fds...), nil)
	if err == nil && n < len(line) {
		_, err = conn.Write(line[n:])
	}
	if err != nil {
		return 0, fmt.Errorf("enter %s: %w", name, err)
	}
	if term != nil {
		restore, err := term.start()
		if err != nil {
			return 0, err
		}
		defer restore()
	}
	stop := passSignals(conn, term)
	defer stop()
	var r response
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return 0, fmt.Errorf("%s is gone: its world was torn down (%w)", name, err)
	}
	if r.Error != "" {
		return 0, fmt.Errorf("enter %s: %s", name, r.Error)
	}
	return r.Exit, nil
}

// passSignals sends the user's signals to the server, and changes of the window's size to the terminal.
func passSignals(conn *net.UnixConn, term *terminal) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGWINCH)
	go func() {
		for s := range signals {
			if number, ok := s.(syscall.Signal); ok && number != syscall.SIGWINCH {
				_ = json.NewEncoder(conn).Encode(request{Signal: int(number)})
			} else if term != nil {
				term.resize()
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// terminal is a pseudoterminal between a user's terminal and a command (pty(7)).
type terminal struct {
	in, out, master, slave *os.File
}

// openTerminal opens a pseudoterminal if in is a terminal. It returns nil if it is not.
func openTerminal(in, out *os.File) (*terminal, error) {
	if _, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err != nil {
		return nil, nil
	}
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	var number int
	if err == nil {
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
	}
	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("make a terminal: %w", err)
	}
	t := &terminal{in: in, out: out, master: master, slave: slave}
	t.resize()
	return t, nil
}

// drainWithin bounds the wait for the last output of a command that has ended.
const drainWithin = 300 * time.Millisecond

// start copies between both terminals until restore is called.
func (t *terminal) start() (restore func(), err error) {
	t.slave.Close() // the command has it
	before, err := unix.IoctlGetTermios(int(t.in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's settings: %w", err)
	}
	raw := *before // as cfmakeraw of termios(3)
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP |
		unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	if err := unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, fmt.Errorf("prepare the terminal: %w", err)
	}
	shown := make(chan struct{})
	go func() { _, _ = io.Copy(t.master, t.in) }() // ends with the process
	go func() {
		_, _ = io.Copy(t.out, t.master) // EIO when the last of the command has closed it
		close(shown)
	}()
	return func() {
		select {
		case <-shown:
		case <-time.After(drainWithin): // a child in the background holds the terminal
		}
		_ = unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, before)
	}, nil
}

// resize gives the command's terminal the size of the user's.
func (t *terminal) resize() {
	if size, err := unix.IoctlGetWinsize(int(t.in.Fd()), unix.TIOCGWINSZ); err == nil {
		_ = unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, size)
	}
}
