package exit

import (
	"errors"
	"fmt"
)

// Exit codes of all commands.
const (
	Done         = 0
	Internal     = 1
	Usage        = 2
	Blocked      = 3 // a person must act
	InProgress   = 4 // still in progress, or timed out waiting
	Failed       = 5 // failed and halted
	Verification = 6 // verification failed
	Nothing      = 7 // nothing to do (only with --fail-if-noop)
	Interrupted  = 130
)

// ExitError is an error with an exit code.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// With gives err an exit code; nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: code, Err: err}
}

// Usagef is an error of the person who typed the command.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// Code is the exit code for an error: 0 for nil, Internal without an ExitError.
func Code(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &e):
		return e.Code
	}
	return Internal
}
