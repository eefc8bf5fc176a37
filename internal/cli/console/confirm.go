package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// RequireTerminal refuses a command that would ask without a terminal. before is the reason to
// ask, for example "refit apply asks before it updates nodes".
func RequireTerminal(in *os.File, before string) error {
	if term.IsTerminal(int(in.Fd())) {
		return nil
	}
	return UsageError(fmt.Errorf("%s, and there is no terminal: use --yes", before))
}

// Confirm asks on w and waits for a line of in. It returns nil for a yes; a no has exit code
// Blocked, and Interrupted if the context ended first. The reader of in then stays
// blocked, so the command must end.
func Confirm(ctx context.Context, in io.Reader, w io.Writer, ask string) error {
	fmt.Fprintf(w, "%s [y/N] ", ask)
	type answer struct {
		line string
		err  error
	}
	said := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		said <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(w)
		return WithExit(ExitInterrupted, errors.New("not started: interrupted before an answer"))
	case a := <-said:
		if a.err != nil {
			fmt.Fprintln(w) // the cursor still stands behind the question
		}
		return checkAnswer(strings.TrimSpace(a.line), a.err)
	}
}

func checkAnswer(line string, err error) error {
	switch strings.ToLower(line) {
	case "y", "yes":
		if err == nil {
			return nil
		}
	case "n", "no":
		return WithExit(ExitBlocked, errors.New("not started"))
	}
	if line == "" {
		return WithExit(ExitBlocked, errors.New("not started: no answer"))
	}
	return WithExit(ExitBlocked, fmt.Errorf("not started: %.20q is not an answer; only y or yes starts it", line))
}
