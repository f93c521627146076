package driver

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// askWithin bounds a question to an agent's binary.
const askWithin = 5 * time.Second

// versionWord is a version within what a program prints: v0.28.9, 3.4.23, v1.2.3-rc1.
var versionWord = regexp.MustCompile(`\bv?\d+\.\d+(\.\d+)?[\w.+-]*`)

// askVersion runs a program with one argument and finds the version in what it prints; a program that prints
// none, such as its usage, is an error with its words.
func askVersion(ctx context.Context, path, argument string) (string, error) {
	line, err := askLine(ctx, path, argument)
	if err != nil {
		return "", err
	}
	if v := versionWord.FindString(line); v != "" {
		return v, nil
	}
	// A build without a version in it, as of a checkout, names itself in words: "overlayd (devel)".
	fields := strings.Fields(line)
	if len(fields) > 0 && len(fields) <= 2 {
		return strings.Trim(fields[len(fields)-1], "()"), nil
	}
	return "", fmt.Errorf("%s %s names no version; it said: %s", path, argument, line)
}

// askLine runs a program with one argument and returns the first line that it prints.
func askLine(ctx context.Context, path, argument string) (string, error) {
	if err := checkProgram(path); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argument)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	said := firstLines(string(out), 5)
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s %s did not end within %s; it said: %s", path, argument, askWithin, said)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w; it said: %s", path, argument, err, said)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first, nil
}

func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return "nothing"
	}
	return strings.Join(lines[:min(n, len(lines))], "\n  ")
}

// checkProgram says what keeps a file from being run: that it is missing, a folder, not executable, or built
// for another architecture.
func checkProgram(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf(
			"the agent %s is not there: give the path of its binary, or a name: %s (%w)",
			path,
			known(),
			err,
		)
	case err != nil:
		return fmt.Errorf("the agent: %w", err)
	case info.IsDir():
		return fmt.Errorf("the agent %s is a folder: give the path of the binary in it", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("the agent %s is not executable: chmod +x %s", path, path)
	}
	return checkArchitecture(path)
}

// machines are the names that Go has for what an ELF header may ask for (elf(5), e_machine).
var machines = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_386: "386", elf.EM_ARM: "arm",
	elf.EM_RISCV: "riscv64", elf.EM_S390: "s390x", elf.EM_PPC64: "ppc64", elf.EM_LOONGARCH: "loong64",
}

// checkArchitecture reads the ELF header; scripts and whatever else the kernel may run are let through. A
// 32-bit binary of the same family is left to the kernel as well.
func checkArchitecture(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil //nolint:nilerr // not an ELF file, which is for the kernel to judge
	}
	defer func() { _ = f.Close() }() // it was only read
	built := machines[f.Machine]
	family := map[string]string{"386": "amd64", "arm": "arm64", "ppc64": "ppc64le"}
	if built == runtime.GOARCH || family[built] == runtime.GOARCH {
		return nil
	}
	if built == "" {
		built = f.Machine.String()
	}
	return fmt.Errorf(
		"the agent %s is built for %s and this machine is %s: bring the binary for %s",
		path,
		built,
		runtime.GOARCH,
		runtime.GOARCH,
	)
}
