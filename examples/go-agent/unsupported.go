package main

import (
	"context"

	"github.com/coder/acp-go-sdk"
)

// What the agent doesn't announce in initialize it refuses, and never pretends to have done.

// Authenticate implements acp.Agent.
func (a *lister) Authenticate(context.Context, acp.AuthenticateRequest) (r acp.AuthenticateResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodAuthenticate)
}

// CloseSession implements acp.Agent.
func (a *lister) CloseSession(context.Context, acp.CloseSessionRequest) (r acp.CloseSessionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionClose)
}

// ListSessions implements acp.Agent.
func (a *lister) ListSessions(context.Context, acp.ListSessionsRequest) (r acp.ListSessionsResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionList)
}

// ResumeSession implements acp.Agent.
func (a *lister) ResumeSession(context.Context, acp.ResumeSessionRequest) (r acp.ResumeSessionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionResume)
}

// SetSessionConfigOption implements acp.Agent.
func (a *lister) SetSessionConfigOption(context.Context, acp.SetSessionConfigOptionRequest) (r acp.SetSessionConfigOptionResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionSetConfigOption)
}

// SetSessionMode implements acp.Agent.
func (a *lister) SetSessionMode(context.Context, acp.SetSessionModeRequest) (r acp.SetSessionModeResponse, err error) {
	return r, acp.NewMethodNotFound(acp.AgentMethodSessionSetMode)
}
