package console

import (
	"errors"
	"fmt"
)

// Exit codes of all commands.
const (
	ExitOK           = 0
	ExitInternal     = 1
	ExitUsage        = 2
	ExitBlocked      = 3 // a person must act
	ExitInProgress   = 4 // still in progress, or timed out waiting
	ExitFailed       = 5 // failed and halted
	ExitVerification = 6 // verification failed
	ExitNothingToDo  = 7 // only with --fail-if-noop
	ExitInterrupted  = 130
)

// ExitError is an error with an exit code.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of the wrapped error, empty after SilentExit.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *ExitError) Unwrap() error { return e.Err }

// SilentExit returns an error with a code and no text: the result was printed already.
func SilentExit(code int) error { return &ExitError{Code: code} }

// WithExit adds an exit code to err; nil stays nil.
func WithExit(code int, err error) error {
	if err == nil {
		return nil
	}
	return &ExitError{Code: code, Err: err}
}

// UsageError marks a wrong call of the command; nil stays nil.
func UsageError(err error) error { return WithExit(ExitUsage, err) }

// UsageErrorf returns the error of a wrong call.
func UsageErrorf(format string, args ...any) error { return UsageError(fmt.Errorf(format, args...)) }

// ExitCode returns the exit code for an error: ExitOK for nil, ExitInternal without an ExitError.
func ExitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.Code
	}
	return ExitInternal
}
