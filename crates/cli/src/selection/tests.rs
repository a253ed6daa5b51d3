//! What is shown of a list of three volumes, and of one volume.

use super::*;
use crate::output::Output;
use admin_api::Code;
use proptest::prelude::*;
use serde_json::json;

fn volumes() -> Output {
    let records = [
        json!({ "name": "home", "size_bytes": 10_u64 << 30, "full": { "ratio": 0.9 }, "tags": ["a"] }),
        json!({ "name": "web", "size_bytes": 1_u64 << 40, "full": { "ratio": 0.1 }, "aggr": "a2" }),
        json!({ "name": "old", "size_bytes": 5, "full": null, "tags": ["b", "a"] }),
    ];
    let mut table = Table::new(&[("NAME", Column::Text)]);
    records.iter().for_each(|record| table.row([plain(&record["name"])]));
    Output::list(&records, |record| plain(&record["name"]), table).unwrap().line("three volumes")
}

fn names(selection: &Selection) -> Result<Vec<String>, AdminError> {
    let output = volumes().select(selection)?;
    let records = output.json["records"].as_array().unwrap();
    assert_eq!(output.json["num_records"], records.len());
    if selection.fields.is_empty() {
        let shown: Vec<String> = records.iter().map(|record| plain(&record["name"])).collect();
        let table = output.table.unwrap().render(false, None);
        assert_eq!(table.lines().collect::<Vec<_>>(), shown);
        assert_eq!(output.names, shown);
    }
    Ok(output.names)
}

fn of_fields(fields: &[String]) -> Selection {
    Selection { fields: fields.to_vec(), ..Selection::default() }
}

fn fitting(conditions: &[&str]) -> Result<String, AdminError> {
    let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
    Ok(names(&Selection { conditions, ..Selection::default() })?.join(" "))
}

#[test]
fn conditions_compare_numbers_sizes_shares_texts_and_lists() {
    for (condition, expected) in [
        ("size_bytes>=10G", "home web"),
        ("size_bytes > 10G", "web"),
        ("size_bytes=5", "old"),
        ("size_bytes!=5", "home web"),
        ("full.ratio<80%", "web"),
        ("full.ratio>0.1", "home"),
        ("full=null", "old"),
        ("full.ratio!=null", "home web"),
        ("name=web", "web"),
        ("name<old", "home"),
        ("name~o", "home old"),
        ("tags~a", "home old"),
        ("tags=b", "old"),
        ("tags!=b", "home web"),
        ("aggr!=a2", "home old"),
        ("aggr=null", "home old"),
    ] {
        assert_eq!(fitting(&[condition]).unwrap(), expected, "{condition}");
    }
    assert_eq!(fitting(&["name~o", "size_bytes<1K"]).unwrap(), "old", "both");
}

#[test]
fn a_list_is_sorted_either_way() {
    let sorted = |sort: &str| {
        let sort = Some(sort.to_owned());
        names(&Selection { sort, ..Selection::default() }).unwrap().join(" ")
    };
    assert_eq!(sorted("size_bytes"), "old home web");
    assert_eq!(sorted("-size_bytes"), "web home old");
    assert_eq!(sorted("name"), "home old web");
    assert_eq!(sorted("full.ratio"), "old web home", "what is not there is first");
}

#[test]
fn fields_are_shown_in_the_order_in_which_they_are_named() {
    let fields = ["size_bytes", "full.ratio", "name"].map(str::to_owned).to_vec();
    let output = volumes().select(&of_fields(&fields)).unwrap();
    let first = json!({ "size_bytes": 10_u64 << 30, "full.ratio": 0.9, "name": "home" });
    assert_eq!(output.json["records"][0], first);
    assert!(output.lines.is_empty(), "nothing but what was asked for");
    let text = "\
SIZE_BYTES  FULL.RATIO  NAME
     10GiB         0.9  home
      1TiB         0.1  web
        5B           -  old
";
    assert_eq!(output.table.unwrap().render(true, None), text);
    let (names, rows) = csv(&output.json, &fields);
    assert_eq!(names, fields);
    assert_eq!(rows[0], ["10737418240", "0.9", "home"]);
    assert_eq!(rows[2], ["5", "", "old"]);
    // Without a choice all fields of any record are columns.
    let (names, rows) = csv(&volumes().json, &[]);
    assert_eq!(names, ["aggr", "full", "name", "size_bytes", "tags"]);
    assert_eq!(rows[0], ["", "{\"ratio\":0.9}", "home", "10737418240", "[\"a\"]"]);
}

#[test]
fn one_object_has_fields_and_no_order() {
    let object = || Output::of("home", &json!({ "name": "home", "size_bytes": 5 })).unwrap();
    let fields = vec!["size_bytes".to_owned()];
    let output = object().select(&of_fields(&fields)).unwrap();
    assert_eq!(output.json, json!({ "size_bytes": 5 }));
    assert_eq!(output.table.unwrap().render(true, None), "SIZE_BYTES\n        5B\n");
    let (_, rows) = csv(&output.json, &fields);
    assert_eq!(rows, [["5"]]);
    let sort = Some("-name".to_owned());
    let error = object().select(&Selection { sort, ..Selection::default() }).unwrap_err();
    assert_eq!((error.code, error.object.as_str()), (Code::Usage, "name"));
}

#[test]
fn what_is_not_there_is_named_and_not_guessed() {
    let unknown = |selection: Selection| {
        let error = volumes().select(&selection).unwrap_err();
        assert_eq!(error.code, Code::Usage);
        error.render()
    };
    let all = "aggr, full, name, size_bytes, tags";
    let fields = vec!["nmae".to_owned()];
    assert!(unknown(Selection { fields, ..Selection::default() }).contains(all));
    let sort = Some("full.rate".to_owned());
    assert!(unknown(Selection { sort, ..Selection::default() }).contains("carried out"));
    assert!(fitting(&["size_bytes>much"]).unwrap_err().render().contains("'much' is none"));
    assert!(fitting(&["full>1"]).unwrap_err().render().contains("a dot between"));
    for text in ["", "name", ">5", "  =x"] {
        assert!(text.parse::<Condition>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_condition_is_read_or_refused(text in "\\PC{0,20}") {
        if let Ok(condition) = text.parse::<Condition>() {
            let conditions = vec![condition];
            let _ = volumes().select(&Selection { conditions, ..Selection::default() });
        }
    }

    /// Beside the same by a loop.
    #[test]
    fn numbers_are_kept_as_a_loop_would(
        numbers in prop::collection::vec(0..9_u64, 1..9),
        limit in 0..9_u64,
        is_reverse in any::<bool>(),
    ) {
        let records: Vec<Value> = numbers.iter().map(|number| json!({ "n": number })).collect();
        let output = Output::list(&records, plain, Table::new(&[])).unwrap();
        let selection = Selection {
            conditions: vec![format!("n>={limit}").parse().unwrap()],
            sort: Some(if is_reverse { "-n" } else { "n" }.to_owned()),
            ..Selection::default()
        };
        let mut expected: Vec<u64> = numbers.into_iter().filter(|it| *it >= limit).collect();
        expected.sort_unstable();
        if is_reverse {
            expected.reverse();
        }
        let shown = output.select(&selection).unwrap().json["records"].clone();
        let expected: Vec<Value> = expected.into_iter().map(|n| json!({ "n": n })).collect();
        prop_assert_eq!(shown, Value::Array(expected));
    }
}

#[test]
fn a_field_that_only_others_have_is_empty() {
    let selection = Selection {
        fields: vec!["aggr".to_owned()],
        conditions: vec!["name=home".parse().unwrap()],
        sort: None,
    };
    let output = volumes().select(&selection).unwrap();
    assert_eq!(output.json, json!({ "records": [{ "aggr": null }], "num_records": 1 }));
    assert_eq!(output.table.unwrap().render(false, None), "-\n");
}
