package manage

import (
	"errors"
	"net/http"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// The errors that package jobqueue does not have.
var (
	// ErrReadOnly refuses a change by a page that is for reading.
	ErrReadOnly = errors.New("this page is for reading only")

	// ErrNotDead refuses to remove a dead job that is not dead any more.
	ErrNotDead = errors.New("the job is not dead any more")
)

// A Failure is an error in JSON. Code is empty for errors that have no name.
type Failure struct {
	Message string `json:"error"`
	Code    string `json:"code,omitempty"`
}

// kinds are the errors that cross a connection, so that errors.Is finds them on the other side.
var kinds = []struct {
	code   string
	status int
	err    error
}{
	{"not_found", http.StatusNotFound, jobqueue.ErrNotFound},
	{"key_exists", http.StatusConflict, jobqueue.ErrKeyExists},
	{"not_dead", http.StatusConflict, ErrNotDead},
	{"lease_lost", http.StatusConflict, jobqueue.ErrLeaseLost},
	{"leased", http.StatusConflict, jobqueue.ErrLeased},
	{"full", http.StatusConflict, jobqueue.ErrFull},
	{"too_large", http.StatusRequestEntityTooLarge, jobqueue.ErrTooLarge},
	{"unknown", http.StatusInternalServerError, jobqueue.ErrUnknown},
	{"closed", http.StatusServiceUnavailable, jobqueue.ErrClosed},
	{"failed", http.StatusServiceUnavailable, jobqueue.ErrFailed},
	{"corrupt", http.StatusInternalServerError, jobqueue.ErrCorrupt},
	{"bad_time", http.StatusBadRequest, jobqueue.ErrBadTime},
	{"bad_schedule", http.StatusBadRequest, jobqueue.ErrBadSchedule},
	{"bad_zone", http.StatusBadRequest, jobqueue.ErrBadZone},
	{"bad_name", http.StatusBadRequest, jobqueue.ErrBadName},
	{"unknown_queue", http.StatusNotFound, jobqueue.ErrUnknownQueue},
	{"invalid", http.StatusBadRequest, jobqueue.ErrInvalid},
	{"no_backup", http.StatusNotImplemented, jobqueue.ErrNoBackup},
	{"read_only", http.StatusForbidden, ErrReadOnly},
}

// FailureOf returns an error as it crosses a connection, and the status of that answer.
func FailureOf(err error) (Failure, int) {
	for _, kind := range kinds {
		if errors.Is(err, kind.err) {
			return Failure{err.Error(), kind.code}, kind.status
		}
	}
	return Failure{Message: err.Error()}, http.StatusInternalServerError
}

// A remoteError is an error that another process has sent.
type remoteError struct {
	message string
	is      error // nil if it has no name here
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// Err returns the error.
func (f Failure) Err() error {
	e := &remoteError{message: f.Message}
	for _, kind := range kinds {
		if kind.code == f.Code {
			e.is = kind.err
		}
	}
	return e
}

// Codes returns the codes that a Failure may have.
func Codes() (codes []string) {
	for _, kind := range kinds {
		codes = append(codes, kind.code)
	}
	return codes
}
