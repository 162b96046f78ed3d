#pragma once
// How a chat template takes an assistant's turn of tool calls. Templates differ, and a wrong shape
// shows as an error, as Python's notation in the prompt, or as calls that silently vanish.

namespace hayate::text {

class ChatTemplate;

struct CallShape {
  // Arguments are objects, which the template serialises; else their JSON text.
  bool argument_objects = false;
  // A turn of calls alone has the content None, else "". Most templates add strings and cannot add
  // None; DeepSeek-R1's first template shows the calls of no turn that has a text.
  bool none_content = false;
};

// Renders a turn in each shape and takes the first whose call arrives whole. A template that shows
// no call in any of them (it wants other conversations, say) is judged by its text.
CallShape FindCallShape(const ChatTemplate& chat);

}  // namespace hayate::text
