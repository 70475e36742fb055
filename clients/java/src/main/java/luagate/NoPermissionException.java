package luagate;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The server's ACL or its password refuses the client. The message names what to add. */
public final class NoPermissionException extends LuagateException {
  private static final long serialVersionUID = 1;

  /** A refused command outside of a script, and one inside of it in Redis 7 and later. */
  private static final Pattern COMMAND = Pattern.compile("(?:run|to) the '?([a-z|]+)'? command");

  /** Where a script was refused. */
  private static final Pattern LINE = Pattern.compile("user_script:(\\d+)");

  private static final Pattern CALLED = Pattern.compile("call\\('([A-Z]+)'");

  private NoPermissionException(String message, Throwable cause) {
    super(message, cause);
  }

  /** Whether the server refuses a permission or a password. */
  static boolean is(ErrorReply refused) {
    String error = refused.getMessage();
    return error.startsWith("NOPERM")
        || isLogin(error)
        || error.contains("can't run this command") // Redis 6, inside of a script
        || error.contains("ACL failure in script");
  }

  private static boolean isLogin(String error) {
    return error.startsWith("WRONGPASS")
        || error.startsWith("NOAUTH")
        || error.contains("unauthenticated"); // a long command before the login
  }

  /**
   * Names the missing permission.
   *
   * @param prefix of the keys
   * @param script the text of the script that was refused, or empty
   */
  static NoPermissionException of(ErrorReply refused, String prefix, String script) {
    String text = withoutStop(refused.getMessage());
    if (isLogin(text)) {
      String remedy = ". Correct the user name and the password of the client for Redis";
      return new NoPermissionException(text + remedy, refused.ofLibrary());
    }
    String remedy = ". Add the permission: ACL SETUSER <user> " + missing(text, prefix, script);
    return new NoPermissionException(text + remedy, refused.ofLibrary());
  }

  private static String missing(String text, String prefix, String script) {
    if (text.contains(" channel")) {
      return "&" + prefix + ":inbox:*";
    }
    if (text.contains(" key")) {
      return "~" + prefix + ":*";
    }
    Matcher command = COMMAND.matcher(text);
    if (command.find()) {
      return "+" + command.group(1);
    }
    Matcher line = LINE.matcher(text);
    if (line.find()) {
      String[] lines = script.split("\n");
      Matcher called = CALLED.matcher(lines[Integer.parseInt(line.group(1)) - 1]);
      if (called.find()) {
        return "+" + called.group(1).toLowerCase();
      }
    }
    return "~" + prefix + ":* &" + prefix + ":inbox:* +@scripting +@pubsub";
  }
}
