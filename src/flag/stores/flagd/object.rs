//! JSON objects that keep what weir does not change as it is, letter by letter.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object whose members keep their order and their text. Numbers of others would otherwise come back
/// rounded, and a review would show lines that nobody changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.get())
    }

    /// A member that is text, if it is there and is.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?).ok()
    }

    /// Sets a member to JSON, in its place or at the end.
    pub(super) fn set(&mut self, name: &str, json: String) -> Result<(), serde_json::Error> {
        let value = RawValue::from_string(json)?;
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.get()))
    }

    /// Its JSON, one member a line, for a place that is `depth` objects deep.
    pub(super) fn render(&self, depth: usize) -> String {
        const INDENT: &str = "  ";
        if self.0.is_empty() {
            return "{}".to_owned();
        }
        let member = |(name, value): (&str, &str)| {
            let name = serde_json::Value::from(name);
            format!("{}{name}: {value}", INDENT.repeat(depth + 1))
        };
        let members: Vec<String> = self.members().map(member).collect();
        format!("{{\n{}\n{}}}", members.join(",\n"), INDENT.repeat(depth))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if object.get(&name).is_some() {
                        return Err(A::Error::custom(format!("`{name}` stands there twice")));
                    }
                    object.0.push((name, value));
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_keeps_its_text() {
        let text = r#"{ "b": 0.10000000000000000001, "a": [1,
  2], "c": 12345678901234567890123 }"#;
        let mut object = Object::parse(text).expect("an object");
        object.set("a", "true".to_owned()).expect("JSON");
        object.set("d\"", "null".to_owned()).expect("JSON");
        let expected = r#"{
  "b": 0.10000000000000000001,
  "a": true,
  "c": 12345678901234567890123,
  "d\"": null
}"#;
        assert_eq!(object.render(0), expected);
        let again = Object::parse(expected).expect("an object");
        assert_eq!(again.render(0), expected, "a second time changes nothing");
    }

    #[test]
    fn a_name_that_stands_there_twice_is_found() {
        let error = Object::parse("{\"a\": 1,\n \"a\": 2}").expect_err("twice").to_string();
        assert!(error.contains("`a` stands there twice") && error.contains("line 2"), "{error}");
    }
}
