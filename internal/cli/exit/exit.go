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

// Error returns the text of the wrapped error, empty after Silent.
func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Silent returns an error with a code and no text: the result was printed already.
func Silent(code int) error { return &Error{Code: code} }

// With adds an exit code to err; nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Usage marks a wrong call of the command; nil stays nil.
func Usage(err error) error { return With(UsageCode, err) }

// Usagef returns the error of a wrong call.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Code returns the exit code for an error: OK for nil, Internal without an Error.
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
