package exit

import (
	"errors"
	"fmt"
)

// Exit codes of all commands.
const (
	OK           = 0
	Internal     = 1
	UsageCode    = 2
	Blocked      = 3 // a person must act
	InProgress   = 4 // still in progress, or timed out waiting
	Failed       = 5 // failed and halted
	Verification = 6 // verification failed
	NothingToDo  = 7 // only with --fail-if-noop
	Interrupted  = 130
)

// Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

// Error is the text of the wrapped error, empty after Silent.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Silent ends with a code and no words: the answer was printed already.
func Silent(code int) error { return &Error{Code: code} }

// With gives err an exit code; nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Usage marks an error of the person who typed the command; nil stays nil.
func Usage(err error) error { return With(UsageCode, err) }

// Usagef is an error of the person who typed the command.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Code is the exit code for an error: OK for nil, Internal without an Error.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	}
	return Internal
}
