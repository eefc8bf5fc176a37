package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	from := flag.String("from", "", "commit before the renames")
	to := flag.String("to", "HEAD", "commit after them")
	list := flag.String("renames", "", "file with lines OLD -> NEW")
	flag.Parse()
	if err := run(*from, *to, *list); err != nil {
		fmt.Fprintln(os.Stderr, "freeze:", err)
		os.Exit(1)
	}
}

var errChanged = errors.New("exit codes or metrics differ")

func run(from, to, list string) error {
	if from == "" {
		return errors.New("name the older commit with -from")
	}
	names, err := readRenames(list)
	if err != nil {
		return err
	}
	before, err := factsOf(from)
	if err != nil {
		return err
	}
	after, err := factsOf(to)
	if err != nil {
		return err
	}
	var failed error
	for _, part := range parts {
		lines := differences(names.apply(before[part.name]), after[part.name])
		fmt.Printf("%s: %d before, %d after, %d differ\n", part.name, len(before[part.name]), len(after[part.name]), len(lines))
		for _, l := range lines {
			fmt.Println("  " + l)
		}
		if len(lines) > 0 && part.frozen {
			failed = errChanged
		}
	}
	return failed
}

// factsOf a commit, whose tree is written to a directory for that.
func factsOf(commit string) (map[string][]string, error) {
	dir, err := os.MkdirTemp("", "refit-freeze-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a directory of ours
	archive := exec.Command("git", "archive", commit, "--", "internal", "api", "config/crd")
	unpack := exec.Command("tar", "-x", "-C", dir)
	var tree, problems bytes.Buffer
	archive.Stdout, archive.Stderr = &tree, &problems
	if err := archive.Run(); err != nil {
		return nil, fmt.Errorf("git archive %s: %w: %s", commit, err, strings.TrimSpace(problems.String()))
	}
	unpack.Stdin = &tree
	if out, err := unpack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("unpack %s: %w: %s", commit, err, out)
	}
	facts := map[string][]string{}
	for _, part := range parts {
		if facts[part.name], err = part.read(filepath.ToSlash(dir)); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", part.name, commit, err)
		}
		if len(facts[part.name]) == 0 {
			return nil, fmt.Errorf("%s of %s: nothing was found", part.name, commit)
		}
	}
	return facts, nil
}
