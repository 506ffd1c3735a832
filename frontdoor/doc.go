// Package frontdoor speaks ACP to clients (editors, command lines, programs) and puts
// their prompts onto the fleet's NATS system. It holds no state that matters: any front
// door can serve any session, and a prompt that was accepted ends whether or not the
// front door that took it lives on.
//
// A connection is one ACP client. Its hold on a session is an attachment: a queue that
// publishes the session's prompts one after the other, and a follower that writes the
// session's stored events to the client in order and answers its turns. All that an
// attachment writes about a session is written by its follower, which is why a turn's
// updates come before its response and none after.
package frontdoor
